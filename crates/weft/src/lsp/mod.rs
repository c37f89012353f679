//! `weft lsp`: a language server over standard input and output.
//!
//! It uses the front end of `weft check`, so an editor shows the same diagnostics. One thread handles messages in
//! order. It checks programs only when no message is waiting, so a burst of key strokes causes one check.

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

/// Serves one client until it sends `exit` or closes its end.
pub(crate) fn run() -> Result<(), Fault> {
    let (connection, stream) = Stream::open();
    let ended = serve(&connection);
    drop(connection);
    // The client's last message explains why it is gone.
    stream.close().map_err(|error| Fault::environment(format!("the client: {error}")))?;
    ended
}

/// Initializes the server, and serves the client's messages until it exits.
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

/// The next message; None once the client is gone. Sends pending notifications before it waits.
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

/// Ignores errors: reading the next message reports that the client is gone.
fn send(connection: &Connection, message: Message) {
    let _ = connection.sender.send(message);
}
