//! Being asked to stop: the first time cleanly, the second time at once.

use crate::fault::Fault;
use std::sync::mpsc::{Receiver, channel};
use tokio::signal::unix::{SignalKind, signal};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// SIGINT
    Interrupt,
    /// SIGTERM
    Terminate,
}

/// Receives one message when the process is asked to stop (SIGINT or SIGTERM). A second request ends it at once.
pub(crate) fn stop_requests() -> Result<Receiver<()>, Fault> {
    let (send, receive) = channel();
    let mut n = 0;
    each_signal(move |_| {
        if n > 0 || send.send(()).is_err() {
            std::process::exit(130);
        }
        n += 1;
        true
    })?;
    Ok(receive)
}

/// Receives a message each time the process is asked to stop by SIGTERM. SIGINT is left to a program that it runs and
/// that has the terminal: the terminal sends it to both.
pub(crate) fn terminations() -> Result<Receiver<()>, Fault> {
    let (send, receive) = channel();
    each_signal(move |asked| asked == Asked::Interrupt || send.send(()).is_ok())?;
    Ok(receive)
}

/// Tells of each signal to stop, on a thread of its own, until `tell` says that nobody listens.
fn each_signal(mut tell: impl FnMut(Asked) -> bool + Send + 'static) -> Result<(), Fault> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(Fault::environment)?;
    let wait = async move {
        let interrupt = signal(SignalKind::interrupt());
        let terminate = signal(SignalKind::terminate());
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else { return };
        loop {
            let asked = tokio::select! {
                _ = interrupt.recv() => Asked::Interrupt,
                _ = terminate.recv() => Asked::Terminate,
            };
            if !tell(asked) {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("weft-signals".to_owned());
    thread.spawn(move || runtime.block_on(wait)).map_err(Fault::environment)?;
    Ok(())
}
