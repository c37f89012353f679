//! Checks request headers: whether a stream is a call, and the answer to any other stream.

use weft_core::Status;
use weft_proto::session::grpc::header::{Codec, parse_content_type, parse_timeout};
use weft_proto::session::http2::Headers;

/// Why a client's stream is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotPost,
    NotGrpc,
    Path,
    Timeout,
    NoRoute,
    NoSchema,
}

/// The answer to a refused request.
pub(crate) enum RefusalResponse {
    /// The status of a gRPC call, and a message.
    Grpc(Status, &'static str),
    /// The status of an HTTP request that is not a gRPC call.
    Http(&'static [u8]),
}

impl Refusal {
    /// Returns the name of the refusal in statistics.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotPost => "not_post",
            Self::NotGrpc => "not_grpc",
            Self::Path => "malformed_path",
            Self::Timeout => "grpc_timeout",
            Self::NoRoute | Self::NoSchema => "no_route",
        }
    }

    /// Returns the answer to a refused stream: an HTTP status, or a gRPC status with a message.
    pub(crate) fn response(self) -> RefusalResponse {
        match self {
            Self::NotPost => RefusalResponse::Http(b"405"),
            // gRPC over HTTP/2, "Requests".
            Self::NotGrpc => RefusalResponse::Http(b"415"),
            Self::Path => RefusalResponse::Grpc(Status::Unimplemented, "the path is not /service/method"),
            Self::Timeout => RefusalResponse::Grpc(Status::Internal, "the grpc-timeout is malformed"),
            Self::NoRoute => RefusalResponse::Grpc(Status::Unimplemented, "no route takes this method"),
            Self::NoSchema => RefusalResponse::Grpc(
                Status::Unimplemented,
                "the chain reads messages, and has no schema for these",
            ),
        }
    }
}

/// Checks that a request is a gRPC call of exactly one method; returns its path, and the encoding of its messages.
pub(crate) fn check_request(headers: &Headers) -> Result<(&[u8], Codec), Refusal> {
    if headers.method() != Some(b"POST") {
        return Err(Refusal::NotPost);
    }
    let codec = headers.get(b"content-type").and_then(parse_content_type).ok_or(Refusal::NotGrpc)?;
    let path = headers.path().filter(|path| is_method_path(path)).ok_or(Refusal::Path)?;
    if headers.get(b"grpc-timeout").is_some_and(|value| parse_timeout(value).is_none()) {
        return Err(Refusal::Timeout);
    }
    Ok((path, codec))
}

/// Whether a path is exactly `/service/method`. Servers remove a query, or decode escapes, and then find a method that
/// no pattern has seen: such a path would bypass chains.
fn is_method_path(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
    };
    let Some(path) = path.strip_prefix(b"/") else { return false };
    let mut names = path.split(|byte| *byte == b'/');
    names.clone().count() == 2 && names.all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If it failed, a path that a server reads differently could bypass an ACL.
    #[test]
    fn path_needs_service_and_method() {
        for path in ["/shop.Cart/Add", "/a/b", "/my-shop.v1_2.Cart/Add"] {
            assert!(is_method_path(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "/",
            "//",
            "/a",
            "/a/",
            "//a",
            "a/b",
            "/a/b/",
            "/a/b/c",
            "//a/b",
            "/a/b?",
            "/a/b?x=1",
            "/a/b#x",
            "/a/%62",
            "/a/b;x",
            "/a/b ",
            "/a/../b",
            "/ä/b",
            "http://x/a/b",
        ] {
            assert!(!is_method_path(path.as_bytes()), "{path}");
        }
    }
}
