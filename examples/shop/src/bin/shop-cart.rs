//! `shop-cart --listen 127.0.0.1:PORT|unix:PATH [--name cart-1]`: one cart server.

use std::process::ExitCode;

use shop::cli::Options;
use shop::server::{Listener, serve, stop_signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (listen, name) = match settings() {
        Ok(settings) => settings,
        Err(reason) => {
            eprintln!("shop-cart: {reason}");
            return ExitCode::from(2);
        }
    };
    match run(&listen, name).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop-cart: cannot serve on {listen}: {error}");
            ExitCode::from(3)
        }
    }
}

fn settings() -> Result<(String, String), String> {
    let options = Options::parse(std::env::args().skip(1), &["listen", "name"])?;
    Ok((options.or("listen", "127.0.0.1:50051".to_owned())?, options.or("name", "cart-1".to_owned())?))
}

async fn run(listen: &str, name: String) -> Result<(), Box<dyn std::error::Error>> {
    let listener = Listener::bind(listen).await?;
    eprintln!("{name} listens on {}", listener.address()?);
    let stop = async {
        if let Err(error) = stop_signal().await {
            eprintln!("shop-cart: no signal can be awaited, stopping: {error}");
        }
    };
    serve(listener, name, stop).await?;
    Ok(())
}
