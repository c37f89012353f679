//! Checks the names of headers and trailers: valid names, and names that a program may set.

use super::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::source::Span;

/// Headers that HTTP/2 and gRPC write themselves. RFC 9113 section 8.2.2 forbids the first five to all others.
const OF_PROTOCOL: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "te",
    "content-length",
    "content-type",
    "grpc-encoding",
    "grpc-message",
    "grpc-status",
];

/// Returns the name in lower case. Reports an invalid name, and a name of binary headers.
pub(super) fn name(cx: &mut Cx<'_>, text: &str, span: Span) -> Option<String> {
    let name = text.to_ascii_lowercase();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    // A colon would make it a pseudo-header (RFC 9113 section 8.3).
    if name.is_empty() || !name.bytes().all(is_token) {
        let message = format!("`{text}` is not a valid header name");
        let diagnostic =
            Diagnostic::error(code::BAD_LITERAL, message).at(span, "not a valid name").with_help(
                "use letters, digits and `-`; for the call's path read `method`, for the client's \
                address `peer`",
            );
        return diagnostic.refuse(cx);
    }
    // gRPC gives applications the bytes and sends them in base64 (doc/PROTOCOL-HTTP2.md, Binary-Header): such a value
    // is neither TEXT for a program nor TEXT for a peer.
    if let Some(plain) = name.strip_suffix("-bin") {
        let diagnostic =
            Diagnostic::error(code::NOT_IN_VERSION, "`-bin` headers are not supported in this version")
                .at(span, "carries bytes in base64, not TEXT")
                .with_note("`-bin` headers that no element names are forwarded unchanged");
        cx.report(match plain {
            "" => diagnostic,
            plain => {
                diagnostic.with_help(format!("use a name without `-bin`, which carries TEXT: `{plain}`"))
            }
        });
        return None;
    }
    Some(name)
}

/// The alternative to setting a protocol-owned header; None for other headers.
pub(super) fn instead_of_writing(name: &str) -> Option<&'static str> {
    match name {
        "grpc-status" | "grpc-message" => Some("end the call with `ABORT status 'text'`"),
        name if OF_PROTOCOL.contains(&name) => Some("use a header of your own: `header['x-...']`"),
        _ => None,
    }
}
