//! Whole programs, from text to the result of a pass, on every backend.

#![allow(clippy::disallowed_methods, reason = "programs and the library are read from disk")]

mod facts;
mod frames;
mod pages;
mod plan;
mod programs;
mod repeat;
mod reshape;
mod rules_page;
mod schema;
mod swap;
mod three_schemas;
mod vectors;
mod wireshark;
