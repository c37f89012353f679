//! weft-engine
