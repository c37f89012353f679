//! weft-api
