//! Slots with generations: the one way in which anything of a shard is named.
//!
//! A [`Key`] is (slot, generation). The generation changes whenever the slot is given to a new value, so a key
//! kept past the end of its value finds nothing: it can never reach the next tenant.

use std::fmt;

/// The name of a value in a [`Table`]: the slot and the generation it had when the value came in.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Index of the slot.
    pub slot: u32,
    /// How often the slot had been given away, in 24 bits (it also travels inside an io_uring `user_data`).
    pub generation: u32,
}

/// Generations count in 24 bits.
pub(crate) const GENERATION_MASK: u32 = 0x00ff_ffff;

impl Key {
    /// A key that no table ever gives out.
    pub const NONE: Key = Key { slot: u32::MAX, generation: 0 };

    /// Packs the key into one word: generation above, slot below.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The reverse of [`Key::to_u64`].
    pub fn from_u64(word: u64) -> Key {
        Key { slot: word as u32, generation: (word >> 32) as u32 & GENERATION_MASK }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

enum Entry<T> {
    Vacant { next_free: u32 },
    Occupied(T),
}

struct Slot<T> {
    generation: u32,
    entry: Entry<T>,
}

/// A slab whose keys carry a generation. All operations take constant time; slots are reused, last freed first.
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    first_free: u32,
    len: usize,
}

/// Bytes that a value takes in a table.
pub(crate) const fn bytes_in_table<T>() -> usize {
    size_of::<Slot<T>>()
}

const NO_SLOT: u32 = u32::MAX;

/// Room for `more` values in a table that grows with the connections: by a quarter, where `Vec` would double, since
/// what is held in reserve is memory of every idle connection.
pub(crate) fn make_room<T>(values: &mut Vec<T>, more: usize) {
    if values.capacity() - values.len() < more {
        values.reserve_exact(more.max(values.len() / 4).max(RESERVE_MIN));
    }
}

const RESERVE_MIN: usize = 16;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table::new()
    }
}

impl<T> Table<T> {
    /// An empty table; it allocates with the first value.
    pub const fn new() -> Self {
        Table { slots: Vec::new(), first_free: NO_SLOT, len: 0 }
    }

    /// How many values are in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no value is in the table.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a value in and names it.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Puts in a value that wants to know its own key.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        if self.first_free == NO_SLOT {
            self.first_free = self.slots.len() as u32;
            make_room(&mut self.slots, 1);
            self.slots.push(Slot { generation: 0, entry: Entry::Vacant { next_free: NO_SLOT } });
        }
        let index = self.first_free;
        let slot = &mut self.slots[index as usize];
        let key = Key { slot: index, generation: slot.generation };
        let value = make(key);
        let Entry::Vacant { next_free } = slot.entry else {
            unreachable!("the free list holds vacant slots")
        };
        self.first_free = next_free;
        slot.entry = Entry::Occupied(value);
        self.len += 1;
        key
    }

    /// The value of this key, unless its time is over.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.slots.get(key.slot as usize) {
            Some(Slot { generation, entry: Entry::Occupied(value) }) if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The value of this key, to be changed, unless its time is over.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.slot as usize) {
            Some(Slot { generation, entry: Entry::Occupied(value) }) if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// Takes the value out; from now on the key finds nothing.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let next_free = self.first_free;
        let slot = &mut self.slots[key.slot as usize];
        let entry = std::mem::replace(&mut slot.entry, Entry::Vacant { next_free });
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.first_free = key.slot;
        self.len -= 1;
        match entry {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant { .. } => unreachable!("get() saw a value"),
        }
    }

    /// Gives the value another name in the same slot, as if it had been taken out and put back: the old key finds
    /// nothing from now on. `None` if it found nothing already.
    #[inline]
    pub fn rename(&mut self, key: Key) -> Option<Key> {
        self.get(key)?;
        let slot = &mut self.slots[key.slot as usize];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        Some(Key { slot: key.slot, generation: slot.generation })
    }

    /// Every value with its key, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match &slot.entry {
            Entry::Occupied(value) => Some((Key { slot: index as u32, generation: slot.generation }, value)),
            Entry::Vacant { .. } => None,
        })
    }

    /// The keys of all values, as they are now.
    pub fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len).field("slots", &self.slots.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_never_reaches_the_next_tenant() {
        let mut table = Table::new();
        let first = table.insert("first");
        assert_eq!(table.remove(first), Some("first"));
        for _ in 0..1000 {
            let next = table.insert("next");
            assert_eq!(next.slot, first.slot, "the slot is reused");
            assert_eq!(table.get(first), None);
            assert_eq!(table.get_mut(first), None);
            assert_eq!(table.remove(first), None);
            assert_eq!(table.remove(next), Some("next"));
        }
        assert!(table.is_empty());
    }

    #[test]
    fn a_renamed_value_is_not_found_by_its_old_key() {
        let mut table = Table::new();
        let first = table.insert("here");
        let second = table.rename(first).unwrap();
        assert_eq!((table.get(first), table.get(second), table.len()), (None, Some(&"here"), 1));
        assert_eq!((table.rename(first), table.remove(first)), (None, None));
        table.slots[0].generation = GENERATION_MASK;
        let last = Key { generation: GENERATION_MASK, ..second };
        assert_eq!(table.rename(last), Some(Key { slot: 0, generation: 0 }));
        assert_eq!(table.remove(first), Some("here"), "after 2^24 names the first one comes again");
    }

    #[test]
    fn a_key_survives_packing() {
        let key = Key { slot: 0xdead_beef, generation: GENERATION_MASK };
        assert_eq!(Key::from_u64(key.to_u64()), key);
    }

    #[test]
    fn generations_wrap_at_24_bits() {
        let mut table = Table::new();
        let key = table.insert(1);
        table.slots[0].generation = GENERATION_MASK;
        let key = Key { generation: GENERATION_MASK, ..key };
        table.remove(key);
        assert_eq!(table.insert(2), Key { slot: 0, generation: 0 });
    }
}
