//! The commands of `weft`: one file for each.

pub(crate) mod apply;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod fmt;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod link;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod top;
