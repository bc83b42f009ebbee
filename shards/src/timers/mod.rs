//! Timers: the wheel that keeps deadlines. It asks nobody for the time and calls nobody.

mod wheel;

pub(crate) use wheel::Wheel;
