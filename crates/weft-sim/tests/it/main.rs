//! The simulator against what is published of the things that it simulates.

mod rig;
mod shapes;
mod tcp;
