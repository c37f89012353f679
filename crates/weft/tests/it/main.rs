//! The binary from outside: real processes, real sockets, stock gRPC at both ends.

mod call_links;
mod checksums;
mod commands;
mod explain;
mod filters;
mod gates;
mod generate;
mod host_captures;
mod import;
mod library;
mod link;
mod lsp;
mod natives;
mod node;
mod order;
mod ports;
mod replay;
mod rules;
mod sim;
mod swap;
mod tenants;
mod trust;
