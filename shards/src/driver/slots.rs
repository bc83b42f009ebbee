//! Operation slots of the drivers.
