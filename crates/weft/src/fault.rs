//! Prints why a command fails, and gives its exit status.

use crate::stderr;
use std::process::ExitCode;
pub(crate) use weft_control::fault::Fault;

/// Prints the message of a fault, and returns the exit status.
pub(crate) fn report(fault: &Fault) -> ExitCode {
    stderr::print(&fault.text());
    ExitCode::from(match fault {
        Fault::Reported | Fault::Input(_) => 1,
        Fault::Usage { .. } => 2,
        Fault::ChildStatus(status) => *status,
        Fault::ReportedEnvironment | Fault::Environment { .. } => 3,
    })
}
