//! The way from the command line to a running node.

use crate::cli::AdminArgs;
use crate::fault::Fault;
use crate::token;
use std::time::Duration;
use weft_api::{Applied, ApplyRequest, Bundle, Refused, Status};

/// An answer that takes longer will not come.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A node's admin endpoint.
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    token: String,
}

/// What came of applying a program.
pub(crate) enum Apply {
    /// It runs.
    Done(Applied),
    /// It is at fault.
    Refused(Refused),
}

impl Client {
    /// For the node that the arguments name.
    pub(crate) fn new(args: &AdminArgs) -> Result<Self, Fault> {
        let token = token::read(args.admin, args.token_file.as_deref())?;
        let config =
            ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
        Ok(Self { agent: config.into(), base: format!("http://{}", args.admin), token })
    }

    /// What the node does.
    pub(crate) fn status(&self) -> Result<Status, Fault> {
        self.get("/v1/status")
    }

    /// What it runs.
    pub(crate) fn program(&self) -> Result<Bundle, Fault> {
        self.get("/v1/program")
    }

    /// Has it run a program.
    pub(crate) fn apply(&self, request: &ApplyRequest) -> Result<Apply, Fault> {
        let sent = self
            .agent
            .post(format!("{}/v1/apply", self.base))
            .header("Authorization", format!("Bearer {}", self.token))
            .send_json(request);
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        match status {
            200 => response.body_mut().read_json().map(Apply::Done).map_err(|error| self.unreachable(&error)),
            422 => {
                response.body_mut().read_json().map(Apply::Refused).map_err(|error| self.unreachable(&error))
            }
            // The node says itself what is wrong with it or its machine.
            503 => Err(Fault::environment(format!(
                "nothing was applied: {}",
                response.body_mut().read_to_string().unwrap_or_default().trim()
            ))),
            _ => Err(self.refused(status, &response.body_mut().read_to_string().unwrap_or_default())),
        }
    }

    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let sent = self
            .agent
            .get(format!("{}{path}", self.base))
            .header("Authorization", format!("Bearer {}", self.token))
            .call();
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(self.refused(status, &response.body_mut().read_to_string().unwrap_or_default()));
        }
        response.body_mut().read_json().map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &ureq::Error) -> Fault {
        Fault::environment(format!("the admin endpoint {} does not answer: {error}", self.base))
            .with_help("is the node running? `weft run FILE` starts one")
    }

    fn refused(&self, status: u16, text: &str) -> Fault {
        let fault = Fault::environment(format!(
            "the admin endpoint {} refused: {} ({status})",
            self.base,
            text.trim()
        ));
        if status == 401 {
            fault.with_help("the token is of another node or another run: see --token-file")
        } else {
            fault
        }
    }
}
