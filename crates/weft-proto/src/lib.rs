//! weft-proto
