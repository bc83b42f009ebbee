//! A hashed hierarchical timing wheel.

use crate::table::Key;
use std::marker::PhantomData;

/// Deadlines and what they are for.
#[derive(Debug)]
pub(crate) struct Wheel<T>(PhantomData<T>);

impl<T> Wheel<T> {
    pub(crate) fn new(_now_ms: u64) -> Self {
        Wheel(PhantomData)
    }
    pub(crate) fn insert(&mut self, _deadline_ms: u64, _value: T) -> Key {
        unimplemented!()
    }
    pub(crate) fn remove(&mut self, _key: Key) -> Option<T> {
        unimplemented!()
    }
    pub(crate) fn reset(&mut self, _key: Key, _deadline_ms: u64) -> bool {
        unimplemented!()
    }
    pub(crate) fn expire(&mut self, _now_ms: u64) -> Option<T> {
        unimplemented!()
    }
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        unimplemented!()
    }
    pub(crate) fn len(&self) -> usize {
        unimplemented!()
    }
}
