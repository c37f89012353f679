//! Why a command fails, and with which exit status.

use core::fmt;
use weft_api::AtFault;

/// A command's failure. Its text goes to standard error.
#[derive(Debug)]
pub enum Fault {
    /// The input is at fault, and the details are already printed.
    Reported,
    /// The environment is at fault, and the details are already printed.
    ReportedEnvironment,
    /// A command that Weft ran ended with this status; Weft ends with the same.
    ChildStatus(u8),
    /// The input is at fault.
    Input(String),
    /// The command line is at fault: it is well-formed, but not allowed as it stands. Has an optional help.
    Usage {
        /// The fault.
        what: String,
        /// A remedy.
        help: Option<String>,
    },
    /// The environment is at fault: what, and an optional help.
    Environment {
        /// The fault.
        what: String,
        /// A remedy.
        help: Option<String>,
    },
}

impl Fault {
    /// The environment is at fault.
    pub fn environment(what: impl fmt::Display) -> Self {
        Self::Environment { what: what.to_string(), help: None }
    }

    /// The command line is at fault.
    pub fn usage(what: impl fmt::Display) -> Self {
        Self::Usage { what: what.to_string(), help: None }
    }

    /// Adds a help text to the fault.
    pub fn with_help(self, help: impl fmt::Display) -> Self {
        match self {
            Self::Usage { what, .. } => Self::Usage { what, help: Some(help.to_string()) },
            Self::Environment { what, .. } => Self::Environment { what, help: Some(help.to_string()) },
            Self::Input(what) => Self::Input(format!("{what}\n  help: {help}")),
            other => other,
        }
    }

    /// A failure that is already printed, with the exit status of this fault.
    pub fn reported(at_fault: AtFault) -> Self {
        match at_fault {
            AtFault::Program => Self::Reported,
            AtFault::Environment => Self::ReportedEnvironment,
        }
    }

    /// The message, in whole lines.
    pub fn text(&self) -> String {
        match self {
            Self::Reported | Self::ReportedEnvironment | Self::ChildStatus(_) => String::new(),
            Self::Input(what) | Self::Usage { what, help: None } | Self::Environment { what, help: None } => {
                format!("weft: {what}\n")
            }
            Self::Usage { what, help: Some(help) } | Self::Environment { what, help: Some(help) } => {
                format!("weft: {what}\n  help: {help}\n")
            }
        }
    }
}
