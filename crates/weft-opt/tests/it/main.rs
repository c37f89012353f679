//! Whole programs, from text to what a pass leaves behind, on every back end.

mod programs;
mod schema;
mod vectors;
