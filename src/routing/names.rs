//! Names of routes as words that live as long as the process: a shard that measures its callbacks holds one word and
//! asks for nothing. Made when routes are added, never on a request's way; each distinct name is kept once, however
//! many shards and servers have the route.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The one copy of this name.
pub(super) fn name(text: String) -> &'static str {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(text.as_str()) {
        return known;
    }
    let made: &'static str = text.leak();
    names.insert(made);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let first = name("handler /names".to_owned());
        assert!(std::ptr::eq(first, name("handler /names".to_owned())) && first == "handler /names");
    }
}
