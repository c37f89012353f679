//! Work on a program, on a thread of its own: the stack has a known size, and a panic ends only this work.
//!
//! Recursion over a program is no deeper than the limits of [`weft_core::limits`] allow. The stack here has room for
//! that depth. Threads of tokio and of the main program have stacks of other sizes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use weft_core::limits::COMPILE_STACK_BYTES;
use weft_lang::diagnostic::{Diagnostic, code};

/// The name of the threads.
const NAME: &str = "weft-program";

/// Why a job has no result.
#[derive(Debug)]
pub(crate) enum JobError {
    /// The job panicked with this message: a bug in Weft.
    Panicked(String),
    /// The system refused to start a thread.
    NoThread(std::io::Error),
}

impl JobError {
    /// The error as a diagnostic.
    pub(crate) fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Panicked(why) => {
                Diagnostic::error(code::INTERNAL, format!("Weft failed at this program: {why}"))
                    .with_note(
                        "the program may be right: this is a fault of Weft, and a node goes on as it was",
                    )
                    .with_help(
                        "report it with the program; what was changed last may be written in another way",
                    )
            }
            Self::NoThread(error) => {
                Diagnostic::error(code::INTERNAL, format!("the system gives no thread for this: {error}"))
                    .with_help("give the process more memory, or more threads")
            }
        }
    }
}

/// Does the work on a new thread, and waits for it.
///
/// # Errors
/// The work panicked, or the system refused a thread.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, JobError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(NAME.to_owned()).stack_size(COMPILE_STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).map_err(JobError::NoThread)?;
        thread.join().map_err(|panic| JobError::Panicked(message(&*panic)))
    })
}

/// Does a part of a job, on its thread. If the work panics, the values that it changes are dropped, or stay as they
/// were.
///
/// # Errors
/// The work panicked.
pub(crate) fn part<T>(work: impl FnOnce() -> T) -> Result<T, JobError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| JobError::Panicked(message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bug in the compiler would end the caller, and with it a node.
    #[test]
    fn panic_becomes_job_error() {
        let broken = run(|| -> u8 { panic!("of {}", "purpose") }).expect_err("it panicked");
        assert!(broken.diagnostic().message.ends_with("at this program: of purpose"), "{broken:?}");
        assert_eq!(broken.diagnostic().code, code::INTERNAL);
        assert_eq!(run(|| 7).ok(), Some(7));
        let broken = part(|| -> u8 { panic!("of purpose") }).expect_err("it panicked");
        assert!(broken.diagnostic().message.ends_with("at this program: of purpose"), "{broken:?}");
    }

    /// Programs within the limits would overflow the smaller stack of another thread.
    #[test]
    fn job_has_its_stack_size() {
        fn deep(left: usize) -> usize {
            let here = [left; 128];
            if left == 0 { 0 } else { 1 + deep(std::hint::black_box(&here)[0] - 1) }
        }
        // Three quarters of the stack; a thread of tokio has a thirtieth.
        let frames = COMPILE_STACK_BYTES / 2048 / 4 * 3;
        assert_eq!(run(|| deep(frames)).ok(), Some(frames));
    }
}
