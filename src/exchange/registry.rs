//! How a parcel that arrives on a thread finds the table of exchanges it is meant for.

use super::Exchanges;
use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::atomic::{AtomicU64, Ordering},
};

thread_local! {
    static TABLES: RefCell<Vec<(u64, Weak<Exchanges>)>> = const { RefCell::new(Vec::new()) };
}

static NEXT_TABLE_ID: AtomicU64 = AtomicU64::new(1);

/// A number that no other table of this process has.
pub(crate) fn next_table_id() -> u64 {
    NEXT_TABLE_ID.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn add(id: u64, exchanges: &Rc<Exchanges>) {
    TABLES.with_borrow_mut(|tables| tables.push((id, Rc::downgrade(exchanges))));
}

pub(crate) fn remove(id: u64) {
    // At the end of the thread the list may be gone before a table is.
    let _ = TABLES.try_with(|tables| tables.borrow_mut().retain(|(other, _)| *other != id));
}

/// Calls `use_it` with the table, if this thread has it.
pub(crate) fn with<R>(id: u64, use_it: impl FnOnce(&Rc<Exchanges>) -> R) -> Option<R> {
    let found = TABLES
        .try_with(|tables| {
            let tables = tables.try_borrow().ok()?;
            tables.iter().find(|(other, _)| *other == id).and_then(|(_, table)| table.upgrade())
        })
        .ok()??;
    Some(use_it(&found))
}
