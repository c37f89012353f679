//! weft-jit
