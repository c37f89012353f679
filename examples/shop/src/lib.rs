//! The shop: a stock gRPC application that knows nothing of Weft.
//!
//! [`server`] is the cart service, [`load`] the front end that calls it; the programs `shop-cart` and
//! `shop-frontend` are thin shells around them. The messages are those of `proto/cart.proto`.

pub mod cli;
pub mod load;
pub mod server;

/// The messages and stubs generated from `proto/cart.proto`.
#[allow(missing_docs, unused_qualifications, clippy::use_self)]
pub mod pb {
    tonic::include_proto!("shop");
}
