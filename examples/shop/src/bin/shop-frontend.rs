//! `shop-frontend --target http://127.0.0.1:PORT|unix:PATH`: calls the cart and counts every call.
//!
//! Options: `--in-flight N` (128), `--connections N` (1), `--duration SECONDS` (10), `--rate CALLS_A_SECOND` (as fast
//! as answers arrive), `--seed N` (1). Prints a JSON line each second, and a final one. Exit status: 0 if every call
//! got a correct answer, 1 if not, 2 for a bad command line, 3 if the target cannot be reached.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use shop::cli::Options;
use shop::load::{Settings, run};
use shop::server::stop_signal;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let settings = match settings() {
        Ok(settings) => settings,
        Err(reason) => {
            eprintln!("shop-frontend: {reason}");
            return ExitCode::from(2);
        }
    };
    let stop = async {
        let _ = stop_signal().await;
    };
    match run(&settings, stop, print_line).await {
        Ok(total) if total.sent == total.answered && total.wrong == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("shop-frontend: cannot reach {}: {error}", settings.target);
            ExitCode::from(3)
        }
    }
}

fn settings() -> Result<Settings, String> {
    let known = ["target", "in-flight", "connections", "duration", "rate", "seed"];
    let options = Options::parse(std::env::args().skip(1), &known)?;
    let settings = Settings {
        target: options.or("target", "http://127.0.0.1:50051".to_owned())?,
        n_in_flight: options.or("in-flight", 128)?,
        n_connections: options.or("connections", 1)?,
        duration: seconds(options.or("duration", 10.0)?)?,
        rate_per_s: options.optional("rate")?,
        seed: options.or("seed", 1)?,
    };
    settings.checked()
}

fn seconds(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("`--duration {seconds}` is not a time"))
}

/// A closed reader ends the report, not the calls in flight.
fn print_line(line: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
