//! weft-opt
