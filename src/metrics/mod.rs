//! Figures: what is counted and how it is kept. Nothing here decides anything.

pub mod files;
pub mod histogram;
