//! Ctrl-C and TERM: the first ends the measuring early, and what was measured is reported as partial; the second ends
//! the program at once. Neighbours: `run`, which says whom to tell.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use shards::ShardHandle;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::client;

/// Exit code of a run that was interrupted: 128 + SIGINT, as shells have it.
pub const EXIT_CODE: u8 = 130;

/// Whether the run was interrupted, and the shards that generate load at the moment.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    interrupted: bool,
    shards: Vec<ShardHandle>,
}

impl Interrupt {
    /// Takes the signals over from the kernel's defaults. Once in a program.
    ///
    /// # Errors
    /// What sigaction(2) answers.
    pub fn listen() -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        let told = interrupt.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                if !told.first() {
                    // At once: nothing that another thread holds is waited for.
                    signal_hook::low_level::exit(EXIT_CODE.into());
                }
            }
        })?;
        Ok(interrupt)
    }

    /// Whether somebody has asked for the end.
    pub fn is_set(&self) -> bool {
        self.lock().interrupted
    }

    /// These shards generate load from now on.
    pub fn watch(&self, shards: &[ShardHandle]) {
        let mut told = self.lock();
        told.shards = shards.to_vec();
        if told.interrupted {
            told.cut_short();
        }
    }

    /// Acts on a signal; false if one has come before.
    fn first(&self) -> bool {
        let mut told = self.lock();
        let first = !std::mem::replace(&mut told.interrupted, true);
        if first {
            told.cut_short();
        }
        first
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    fn cut_short(&self) {
        for shard in &self.shards {
            // A shard that has ended has nothing to cut short.
            let _ = shard.execute(client::cut_short);
        }
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Interrupt").field(&self.is_set()).finish()
    }
}
