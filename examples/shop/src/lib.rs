//! The shop: a plain gRPC application without any use of Weft.
//!
//! [`server`] is the cart service, and [`load`] the front end that calls it. The programs `shop-cart` and
//! `shop-frontend` are thin wrappers. The messages are those of `proto/cart.proto`.

pub mod cli;
pub mod load;
pub mod server;

/// The messages and stubs generated from `proto/cart.proto`.
#[allow(missing_docs, unused_qualifications, clippy::use_self)]
pub mod pb {
    tonic::include_proto!("shop");
}
