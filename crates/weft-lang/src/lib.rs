//! weft-lang
