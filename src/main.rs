//! The program: reads the command line and runs what it names. The one place that knows configuration and handlers;
//! no request passes through it.

mod access;
mod cli;
mod doctor;
mod failure;
mod hand_over;
mod logging;
mod run;
mod serve;
mod signals;
mod startup;

use cli::{Command, Refusal};
use failure::{Exit, Failure};
use shardlet::handlers;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(Refusal::Text(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(Refusal::HelpOfAll(text)) => {
            print!("{text}");
            for (name, help) in shardlet::load::command::helps() {
                println!("\n\n# shardlet {name}\n\n{}", help.trim_end());
            }
            return ExitCode::SUCCESS;
        }
        Err(Refusal::Failure(failure)) => return end(&failure),
    };
    match run(cli.command) {
        Ok(code) => code,
        Err(failure) => end(&failure),
    }
}

fn end(failure: &Failure) -> ExitCode {
    eprintln!("{failure}");
    failure.exit.into()
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Bench { args } => Ok(ExitCode::from(shardlet::load::command::main(args))),
        Command::Doctor => Ok(examine()),
        Command::Demo(args) => run::run("demo", &args, handlers::demo::router()),
        Command::Serve(args) => serve::serve(&args),
        Command::Respond(args) => respond(args),
    }
}

fn examine() -> ExitCode {
    let driver = shards::probe().into();
    let (text, can_run) = doctor::report(&doctor::Facts::find(driver));
    print!("{text}");
    if can_run { ExitCode::SUCCESS } else { Exit::Environment.into() }
}

/// A fixed answer to every request.
fn respond(args: cli::RespondArgs) -> Result<ExitCode, Failure> {
    let cli::RespondArgs { status, body, headers, server } = args;
    let fields: Vec<_> = headers.into_iter().map(|field| (field.name.to_string(), field.value)).collect();
    let answer = handlers::fixed::Answer::new(status, body.into_bytes(), fields);
    run::run("respond", &server, move |_| handlers::fixed::router(&answer))
}
