//! Why a command ends without success, and with which exit status.

use core::fmt;
use std::process::ExitCode;

/// A command's failure. What is said of it goes to standard error.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The input is at fault, and what is wrong has been said already.
    Told,
    /// The input is at fault.
    Input(String),
    /// The command line is at fault: what it asks for is well-formed, and not allowed as it stands.
    Usage(String),
    /// The environment is at fault: what, and what would help.
    Environment { what: String, help: Option<String> },
}

impl Fault {
    /// The environment is at fault.
    pub(crate) fn environment(what: impl fmt::Display) -> Self {
        Self::Environment { what: what.to_string(), help: None }
    }

    /// The same, with what would help.
    pub(crate) fn with_help(self, help: impl fmt::Display) -> Self {
        match self {
            Self::Environment { what, .. } => Self::Environment { what, help: Some(help.to_string()) },
            other => other,
        }
    }

    /// Says it, and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Told => ExitCode::from(1),
            Self::Input(what) => {
                eprintln!("weft: {what}");
                ExitCode::from(1)
            }
            Self::Usage(what) => {
                eprintln!("weft: {what}");
                ExitCode::from(2)
            }
            Self::Environment { what, help } => {
                eprintln!("weft: {what}");
                if let Some(help) = help {
                    eprintln!("  help: {help}");
                }
                ExitCode::from(3)
            }
        }
    }
}
