//! From a request's head to the code that answers it: patterns, methods, filters, coordinators.
//!
//! A [`Router`] is built on every shard by the application's factory, so that handlers may hold `!Send` state
//! without a lock. It is checked when it is built; matching a request allocates nothing.

mod coordinator;
mod filter;
mod handler;
mod names;
mod path;
mod router;
mod throttle;

pub use coordinator::Coordinator;
pub(crate) use coordinator::CoordinatorSlot;
pub use filter::{Filter, Next};
pub use handler::{Endpoint, Handler, IntoEndpoint, any, delete, get, patch, post, put};
pub(crate) use router::Found;
pub use router::{HalfClose, Route, RouteError, Router};
pub use throttle::{Throttle, ThrottleCounters, Throttled};
