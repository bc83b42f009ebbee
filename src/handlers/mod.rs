//! Ready-made handlers. Each is a customer of the public interface like any other and knows no other handler.

pub mod admin;
pub mod demo;
pub mod files;
pub mod fixed;
