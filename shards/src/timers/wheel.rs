//! A hashed hierarchical timing wheel: deadlines in milliseconds in, values whose time has come out.
//!
//! Neighbours: `shard.rs` gives it the time and runs what comes out. It asks nobody for the time, calls nobody and
//! knows nothing of what a value means.
//!
//! Four levels of 64 slots. A timer waits on the level of the highest group of six bits in which its deadline
//! differs from the present, in the slot that this group of its deadline names; beyond the fourth level (4.6 hours)
//! it waits in one further list. When the present enters a slot's span, the slot's timers move to lower levels,
//! in order. So all timers of one deadline are always in one list, and come out in the order they went in.
//!
//! ```text
//!   level 3  262 s a slot ┐
//!   level 2  4.1 s a slot ├─ moved down when the slot's span begins
//!   level 1  64 ms a slot ┘
//!   level 0   1 ms a slot ──▶ due ──▶ expire()
//! ```

use crate::table::{GENERATION_MASK, Key, make_room};
use std::fmt;

/// Deadlines and what they are for. Inserting, removing and expiring take constant time (a timer moves down at most
/// four times); nothing is allocated for a timer while a slot of an earlier one is free.
pub(crate) struct Wheel<T> {
    /// The present: every timer up to here has come out or is in the due list.
    now_ms: u64,
    nodes: Vec<Node<T>>,
    first_free: u32,
    len: usize,
    lists: Box<[List; LISTS]>,
    /// A bit for each slot that has timers, by level.
    occupied: [u64; LEVELS],
}

struct Node<T> {
    deadline_ms: u64,
    previous: u32,
    /// The next timer of the list, or the next free node.
    next: u32,
    generation: u32,
    list: u16,
    value: Option<T>,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const LEVELS: usize = 4;
const LEVEL_BITS: usize = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Timers beyond the last level.
const FAR: usize = LEVELS * SLOTS;
/// Timers whose time has come.
const DUE: usize = FAR + 1;
const LISTS: usize = DUE + 1;
const NONE: u32 = u32::MAX;
const EMPTY: List = List { first: NONE, last: NONE };

impl<T> Wheel<T> {
    /// What one timer takes, in bytes.
    pub(crate) const NODE_BYTES: usize = size_of::<Node<T>>();

    /// An empty wheel that begins at `now_ms`.
    pub(crate) fn new(now_ms: u64) -> Self {
        Wheel {
            now_ms,
            nodes: Vec::new(),
            first_free: NONE,
            len: 0,
            lists: Box::new([EMPTY; LISTS]),
            occupied: [0; LEVELS],
        }
    }

    /// How many timers wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Waits for `deadline_ms`; one in the past comes out of the next [`Wheel::expire`]. Round deadlines up and the
    /// present down to whole milliseconds, and no timer fires early.
    pub(crate) fn insert(&mut self, deadline_ms: u64, value: T) -> Key {
        let index = self.vacant_node();
        let node = &mut self.nodes[index as usize];
        node.deadline_ms = deadline_ms;
        node.value = Some(value);
        let key = Key { slot: index, generation: node.generation };
        self.len += 1;
        self.place(index);
        key
    }

    /// Forgets a timer. `None` if its time is over.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.find(key)?;
        self.unlink(key.slot);
        self.release(key.slot)
    }

    /// Gives a timer another deadline, as if it were inserted now. False if its time is over.
    pub(crate) fn reset(&mut self, key: Key, deadline_ms: u64) -> bool {
        if self.find(key).is_none() {
            return false;
        }
        self.unlink(key.slot);
        self.nodes[key.slot as usize].deadline_ms = deadline_ms;
        self.place(key.slot);
        true
    }

    /// The next value whose deadline is `now_ms` or earlier, by deadline, then by insertion. Call it until it gives
    /// `None`, or to a budget: what is left keeps [`Wheel::next_deadline_ms`] in the past.
    pub(crate) fn expire(&mut self, now_ms: u64) -> Option<T> {
        loop {
            let index = self.lists[DUE].first;
            if index != NONE {
                self.unlink(index);
                return self.release(index);
            }
            match self.next_event_ms() {
                Some(event_ms) if event_ms <= now_ms => self.advance(event_ms),
                _ => break,
            }
        }
        self.now_ms = self.now_ms.max(now_ms);
        None
    }

    /// When to call [`Wheel::expire`] again: the next deadline, or an earlier moment at which timers move down a
    /// level (at most four such moments lie before a deadline). Constant time.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        if self.lists[DUE].first != NONE { Some(self.now_ms) } else { self.next_event_ms() }
    }

    /// The earliest beginning of an occupied slot. Lower levels end before the next slot of a higher one begins.
    fn next_event_ms(&self) -> Option<u64> {
        for (level, bits) in self.occupied.iter().enumerate() {
            if *bits != 0 {
                let shift = level * LEVEL_BITS;
                let block = self.now_ms >> (shift + LEVEL_BITS) << LEVEL_BITS;
                return Some((block | u64::from(bits.trailing_zeros())) << shift);
            }
        }
        let far = self.lists[FAR].first != NONE;
        far.then(|| ((self.now_ms >> (LEVELS * LEVEL_BITS)) + 1) << (LEVELS * LEVEL_BITS))
    }

    /// Goes to `event_ms`, the beginning of the next occupied slot, and empties that slot.
    fn advance(&mut self, event_ms: u64) {
        let from = match self.occupied.iter().position(|bits| *bits != 0) {
            Some(level) => level * SLOTS + slot_of(event_ms, level),
            None => FAR,
        };
        self.now_ms = event_ms;
        let List { first, .. } = std::mem::replace(&mut self.lists[from], EMPTY);
        self.mark_vacant(from);
        let mut index = first;
        while index != NONE {
            let next = self.nodes[index as usize].next;
            self.place(index);
            index = next;
        }
    }

    fn find(&self, key: Key) -> Option<&Node<T>> {
        let node = self.nodes.get(key.slot as usize)?;
        (node.generation == key.generation && node.value.is_some()).then_some(node)
    }

    /// Puts a node that is in no list where its deadline belongs, behind those that are there.
    fn place(&mut self, index: u32) {
        let list = list_of(self.now_ms, self.nodes[index as usize].deadline_ms);
        let List { first, last } = self.lists[list];
        let node = &mut self.nodes[index as usize];
        node.list = list as u16;
        node.previous = last;
        node.next = NONE;
        match last {
            NONE => self.lists[list] = List { first: index, last: index },
            _ => {
                self.nodes[last as usize].next = index;
                self.lists[list] = List { first, last: index };
            }
        }
        if list < FAR {
            self.occupied[list / SLOTS] |= 1 << (list % SLOTS);
        }
    }

    fn unlink(&mut self, index: u32) {
        let Node { previous, next, list, .. } = self.nodes[index as usize];
        let list = list as usize;
        match previous {
            NONE => self.lists[list].first = next,
            _ => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[list].last = previous,
            _ => self.nodes[next as usize].previous = previous,
        }
        if self.lists[list].first == NONE {
            self.mark_vacant(list);
        }
    }

    fn mark_vacant(&mut self, list: usize) {
        if list < FAR {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    fn vacant_node(&mut self) -> u32 {
        if self.first_free == NONE {
            let node =
                Node { deadline_ms: 0, previous: NONE, next: NONE, generation: 0, list: 0, value: None };
            make_room(&mut self.nodes, 1);
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let index = self.first_free;
        self.first_free = self.nodes[index as usize].next;
        index
    }

    fn release(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        node.generation = (node.generation + 1) & GENERATION_MASK;
        node.next = self.first_free;
        self.first_free = index;
        self.len -= 1;
        node.value.take()
    }
}

fn slot_of(time_ms: u64, level: usize) -> usize {
    (time_ms >> (level * LEVEL_BITS)) as usize % SLOTS
}

/// The list in which a deadline waits at this moment.
fn list_of(now_ms: u64, deadline_ms: u64) -> usize {
    if deadline_ms <= now_ms {
        return DUE;
    }
    let highest_difference = (now_ms ^ deadline_ms).ilog2() as usize;
    match highest_difference / LEVEL_BITS {
        level @ 0..LEVELS => level * SLOTS + slot_of(deadline_ms, level),
        _ => FAR,
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("now_ms", &self.now_ms).field("len", &self.len).finish()
    }
}

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;
