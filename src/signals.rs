//! Signals as values: a thread that waits for them and hands each on, already decided, over a channel. What the server
//! does about them is `main`'s business.

use crossbeam_channel::{Receiver, bounded};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
};
use std::{io, thread};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// TERM or QUIT: answer what is under way within the deadline, then end.
    Graceful,
    /// The first INT: cut what is under way, then end.
    Fast,
    /// The second INT: end at once.
    Now,
    /// HUP: read the configuration again.
    Reload,
    /// USR1: open the log files again.
    ReopenLogs,
    /// USR2: start the program anew, hand the sockets over, and end.
    HandOver,
}

/// Remembers what came before: an INT means more the second time.
#[derive(Debug, Default)]
struct Escalation {
    interrupts: u32,
}

impl Escalation {
    /// What this signal number means now; `None` for one that was not asked for.
    fn next(&mut self, number: i32) -> Option<Signal> {
        match number {
            SIGTERM | SIGQUIT => Some(Signal::Graceful),
            SIGHUP => Some(Signal::Reload),
            SIGUSR1 => Some(Signal::ReopenLogs),
            SIGUSR2 => Some(Signal::HandOver),
            SIGINT => {
                self.interrupts = self.interrupts.saturating_add(1);
                Some(if self.interrupts == 1 { Signal::Fast } else { Signal::Now })
            }
            _ => None,
        }
    }
}

/// Signals that wait to be read. A full channel means that nobody reads, and then one more tells nothing new.
const WAITING_MAX: usize = 16;

/// Takes the signals over from the kernel's defaults. Call once, before the shards start. [`Signal::Now`] is acted upon
/// here, with exit code 1, because its reader may be the one that hangs.
pub(crate) fn listen() -> io::Result<Receiver<Signal>> {
    let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let (sender, receiver) = bounded(WAITING_MAX);
    let wait = move || {
        let mut escalation = Escalation::default();
        for signal in signals.forever().filter_map(|number| escalation.next(number)) {
            if signal == Signal::Now {
                std::process::exit(1);
            }
            let _full_is_enough = sender.try_send(signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn second_interrupt_is_now() {
        let mut escalation = Escalation::default();
        let numbers = [SIGHUP, SIGTERM, SIGQUIT, SIGUSR2, SIGINT, SIGUSR1, SIGINT, SIGINT, 28];
        let meanings: Vec<_> = numbers.into_iter().filter_map(|number| escalation.next(number)).collect();
        let (reload, logs) = (Signal::Reload, Signal::ReopenLogs);
        let graceful = [reload, Signal::Graceful, Signal::Graceful, Signal::HandOver];
        assert_eq!(meanings[..4], graceful);
        assert_eq!(meanings[4..], [Signal::Fast, logs, Signal::Now, Signal::Now]);
    }

    #[test]
    fn a_real_signal_arrives() {
        let signals = listen().expect("take signals over");
        signal_hook::low_level::raise(SIGHUP).expect("raise");
        assert_eq!(signals.recv_timeout(Duration::from_secs(20)), Ok(Signal::Reload));
    }
}
