//! `weft lsp`: a language server over standard input and output.
//!
//! The front end is that of `weft check`, so an editor shows what a check would say, in the words of a check. One
//! thread works; it takes what the client sends in order, and looks at programs once nothing more is waiting to be
//! read, so that a burst of key strokes is checked once.

mod answers;
mod position;
mod programs;
mod server;
mod stream;
#[cfg(test)]
mod tests;

use crate::fault::Fault;
use lsp_server::{Connection, Message};
use server::Server;
use stream::Stream;

/// Serves one client until it says `exit` or closes its end.
pub(crate) fn run() -> Result<(), Fault> {
    let (connection, stream) = Stream::open();
    let ended = serve(&connection);
    drop(connection);
    // What the client sent is why it is no longer there.
    stream.close().map_err(|error| Fault::environment(format!("the client: {error}")))?;
    ended
}

fn serve(connection: &Connection) -> Result<(), Fault> {
    let fault = |error: lsp_server::ProtocolError| match error.channel_is_disconnected() {
        true => Fault::environment("the client is gone, and did not say `exit`"),
        false => Fault::environment(format!("the client: {error}")),
    };
    let (id, _) = connection.initialize_start().map_err(fault)?;
    connection.initialize_finish(id, server::abilities()).map_err(fault)?;
    let mut server = Server::default();
    while let Some(message) = next(connection, &mut server) {
        if let Message::Request(request) = &message
            && connection.handle_shutdown(request).map_err(fault)?
        {
            break;
        }
        server.handle(message).into_iter().for_each(|answer| send(connection, answer));
    }
    Ok(())
}

/// The next message; None once the client is gone. What the server has to say by itself it says before it waits.
fn next(connection: &Connection, server: &mut Server) -> Option<Message> {
    match connection.receiver.try_recv() {
        Ok(message) => Some(message),
        Err(nothing) if nothing.is_empty() => {
            server.poll().into_iter().for_each(|message| send(connection, message));
            connection.receiver.recv().ok()
        }
        Err(_) => None,
    }
}

/// A client that is gone is noticed where the next message is read.
fn send(connection: &Connection, message: Message) {
    let _ = connection.sender.send(message);
}
