//! Frames messages over standard input and output, by the base protocol of the Language Server Protocol 3.17.

use crossbeam_channel::bounded;
use lsp_server::{Connection, Message};
use std::io::{BufRead, Error, ErrorKind, Read as _, Result, stdin, stdout};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, spawn};

/// The largest message, in bytes: room for a file of the largest size twice, with every byte escaped as six.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// The largest headers of a message, in bytes.
const HEADER_BYTES_MAX: u64 = 4096;

/// The reader and writer threads.
pub(super) struct Stream {
    writer: JoinHandle<Result<()>>,
    /// Receives the error that ended the reader, if any.
    faults: Receiver<Error>,
}

impl Stream {
    /// Starts to read standard input; messages sent over the connection go to standard output.
    #[expect(
        clippy::disallowed_methods,
        reason = "messages go out as they come, and `close` tells of faults"
    )]
    /// Starts a reader of standard input and a writer to standard output. Returns their connection for the server.
    pub(super) fn open() -> (Connection, Self) {
        // A channel without a buffer: neither side runs ahead of the server or of the client.
        let (sender, taken) = bounded(0);
        let (answers, receiver) = bounded::<Message>(0);
        let (failed, faults) = channel();
        spawn(move || {
            if let Err(error) = read_all(&mut stdin().lock(), |message| sender.send(message).is_ok()) {
                let _ = failed.send(error);
            }
        });
        let writer = spawn(move || {
            let mut output = stdout().lock();
            receiver.into_iter().try_for_each(|message| message.write(&mut output))
        });
        (Connection { sender: answers, receiver: taken }, Self { writer, faults })
    }

    /// Waits until everything is written. Does not wait for the reader: it may be blocked on a silent client.
    ///
    /// # Errors
    /// The client sent something that is no message, or closed its end of the pipe.
    pub(super) fn close(self) -> Result<()> {
        let written = self.writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.faults.try_recv().map_or(written, Err)
    }
}

/// Passes messages to `take` until the client closes its end, or `take` returns false.
fn read_all(input: &mut impl BufRead, mut take: impl FnMut(Message) -> bool) -> Result<()> {
    while let Some(message) = read(input)? {
        if !take(message) {
            break;
        }
    }
    Ok(())
}

/// The next message; None at the end of the input.
///
/// # Errors
/// The input is no message, or is too large.
fn read(input: &mut impl BufRead) -> Result<Option<Message>> {
    let mut frame = Vec::new();
    let mut body_bytes = 0;
    loop {
        let begin = frame.len();
        let left = HEADER_BYTES_MAX - begin as u64;
        if input.by_ref().take(left).read_until(b'\n', &mut frame)? == 0 {
            return if left > 0 { Ok(None) } else { Err(invalid("the headers of a message are too long")) };
        }
        match &frame[begin..] {
            b"\r\n" => break,
            line => body_bytes = content_length(line).unwrap_or(body_bytes),
        }
    }
    if body_bytes > MESSAGE_BYTES_MAX {
        let why = format!("a message of {body_bytes} bytes, and {MESSAGE_BYTES_MAX} is the limit");
        return Err(invalid(why));
    }
    input.take(body_bytes).read_to_end(&mut frame)?;
    // It reports errors in headers and text itself.
    Message::read(&mut &*frame)
}

fn content_length(line: &[u8]) -> Option<u64> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    name.eq_ignore_ascii_case("Content-Length").then(|| value.trim().parse().ok())?
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(mut bytes: &[u8]) -> String {
        match read(&mut bytes) {
            Ok(Some(message)) => format!("{} and {} more", message_kind(&message), bytes.len()),
            Ok(None) => "closed".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn message_kind(message: &Message) -> &'static str {
        match message {
            Message::Request(_) => "request",
            Message::Response(_) => "response",
            Message::Notification(_) => "notification",
        }
    }

    #[test]
    fn bad_length_is_refused_before_alloc() {
        // A number in a header must not make the server allocate all memory.
        let exit = r#"{"jsonrpc":"2.0","method":"exit"}"#;
        let framed = |length: &str| format!("Content-Length: {length}\r\n\r\n{exit}rest");
        assert_eq!(received(framed("33").as_bytes()), "notification and 4 more");
        assert_eq!(received(format!("X-A: b\r\n{}", framed("33")).as_bytes()), "notification and 4 more");
        assert_eq!(received(b""), "closed");
        let limit = "a message of 9999999999 bytes, and 67108864 is the limit";
        assert_eq!(received(framed("9999999999").as_bytes()), limit);
        assert_eq!(received(framed("60000000").as_bytes()), "failed to fill whole buffer");
        assert_eq!(received(framed("-1").as_bytes()), "invalid digit found in string");
        assert!(received(framed("99999999999999999999").as_bytes()).contains("number too large"));
        assert!(received(b"\r\n{}").contains("no Content-Length"));
        assert!(received(b"nonsense\r\n\r\n").contains("malformed header"));
        assert!(received(b"Content-Length: 2\r\n\r\n{}").contains("malformed LSP payload"));
        assert_eq!(received(&vec![b'a'; 1 << 20]), "the headers of a message are too long");
        let deep = format!("Content-Length: 100000\r\n\r\n{}", "[".repeat(100_000));
        assert!(received(deep.as_bytes()).contains("recursion limit"));
    }
}
