//! Timers: the wheel that keeps deadlines. It asks nobody for the time and calls nobody.

mod target;
mod wheel;

pub use target::TimerEvents;
pub(crate) use target::TimerTarget;
pub(crate) use wheel::Wheel;

/// Part of what an idle connection costs: see `net/mod.rs`.
const _: () = assert!(Wheel::<TimerTarget>::NODE_BYTES <= 56);
