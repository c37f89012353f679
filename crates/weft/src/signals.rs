//! Being asked to stop: the first time cleanly, the second time at once.

use crate::fault::Fault;
use std::sync::mpsc::{Receiver, channel};
use tokio::signal::unix::{SignalKind, signal};

/// Receives one message when the process is asked to stop (SIGINT or SIGTERM). A second request ends it at once.
pub(crate) fn stop_requests() -> Result<Receiver<()>, Fault> {
    let (send, receive) = channel();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(Fault::environment)?;
    let wait = async move {
        let interrupt = signal(SignalKind::interrupt());
        let terminate = signal(SignalKind::terminate());
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else { return };
        for n in 0.. {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if n > 0 || send.send(()).is_err() {
                std::process::exit(130);
            }
        }
    };
    let thread = std::thread::Builder::new().name("weft-signals".to_owned());
    thread.spawn(move || runtime.block_on(wait)).map_err(Fault::environment)?;
    Ok(receive)
}

/// Receives a message each time the process is asked to stop by SIGTERM. SIGINT is left to a program that it runs and
/// that has the terminal: the terminal sends it to both.
pub(crate) fn terminations() -> Result<Receiver<()>, Fault> {
    let (send, receive) = channel();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(Fault::environment)?;
    let wait = async move {
        let interrupt = signal(SignalKind::interrupt());
        let terminate = signal(SignalKind::terminate());
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else { return };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => if send.send(()).is_err() { return },
            }
        }
    };
    let thread = std::thread::Builder::new().name("weft-signals".to_owned());
    thread.spawn(move || runtime.block_on(wait)).map_err(Fault::environment)?;
    Ok(receive)
}
