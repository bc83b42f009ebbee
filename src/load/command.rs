//! `shardlet bench`: from the words typed to an exit code. Neighbours: `args` and `plan` before it, `run` for a run,
//! `output` for what is written. The program's `main` calls [`main`] and nothing else of this folder.

use std::{ffi::OsString, fs, io, net::SocketAddr, path::Path};

use clap::{CommandFactory, Parser};

use super::{
    args::{Action, BenchArgs, CompareArgs, MergeArgs, ReportArgs, RunArgs},
    compare::{self, CompareOptions, Comparison, Side},
    error::LoadError,
    interrupt, merge,
    output::{self, Output},
    plan::Plan,
    report::charts,
    run,
    scrape::Board,
    units,
};

/// Runs the load tool with the words behind `bench`. Answers the exit code; what is to be said was printed.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let words = ["shardlet bench".into()].into_iter().chain(args);
    let args = match BenchArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            if error.use_stderr() {
                eprintln!("{}", usage_line(&error));
                return 2;
            }
            // Help and version are answers, not errors.
            let _ = error.print();
            return 0;
        }
    };
    let outcome = match args.action {
        None => measure(&args.run),
        Some(Action::Compare(args)) => compare(&args),
        Some(Action::Merge(args)) => merge(&args),
        Some(Action::Report(args)) => report(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        error.exit_code
    })
}

/// clap explains itself in paragraphs: the first says what, a `tip:` line says the cure.
fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let what: Vec<&str> = lines.clone().take_while(|line| !line.is_empty()).collect();
    let what = what.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let tip = lines.filter_map(|line| line.strip_prefix("tip: ")).map(|tip| format!("{tip}; ")).next();
    format!("shardlet bench: {what}; {}see shardlet bench --help", tip.unwrap_or_default())
}

/// The help of `bench` and of each command below it, by name.
pub fn helps() -> Vec<(String, String)> {
    let mut bench = BenchArgs::command();
    bench.build();
    let mut helps = vec![("bench".to_owned(), bench.render_long_help().to_string())];
    for command in bench.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        helps.push((format!("bench {}", command.get_name()), command.render_long_help().to_string()));
    }
    helps
}

fn measure(args: &RunArgs) -> Result<u8, LoadError> {
    let plan = Plan::new(args)?;
    plan.notes.iter().for_each(|note| eprintln!("note: {note}"));
    output::check(&args.output)?;
    let board = args.metrics.map(listen).transpose()?;
    let result = run::run(plan, &args.output, board)?;
    let code = output::present(&result, &args.output)?;
    Ok(if result.meta.cut_short_s.is_some() { interrupt::EXIT_CODE } else { code })
}

fn listen(address: SocketAddr) -> Result<Board, LoadError> {
    let failed = |error| LoadError::environment(format!("--metrics {address}: {error}"));
    let (board, bound) = Board::listen(address).map_err(failed)?;
    eprintln!("note: metrics of this run at http://{bound}/metrics");
    Ok(board)
}

fn compare(args: &CompareArgs) -> Result<u8, LoadError> {
    let quantiles: Option<Vec<f64>> =
        args.on.split(',').map(|name| units::parse_quantile(name.trim())).collect();
    let quantiles =
        quantiles.ok_or_else(|| LoadError::usage("--on takes percentiles, such as p50,p99,max"))?;
    let sides = args.results.iter().map(|names| read_side(names)).collect::<Result<Vec<_>, _>>()?;
    let options = CompareOptions { quantiles, tolerance: args.tolerance };
    let (base, others) = (&sides[0], &sides[1..]);
    let comparisons: Vec<Comparison> =
        others.iter().map(|other| Comparison::of(base, other, &options)).collect();
    let text: Vec<String> = comparisons.iter().map(Comparison::text).collect();
    output::print(&text.join("\n"))?;
    if let Some(file) = &args.svg {
        write(file, &charts::stand_alone("shardlet bench compare", vec![compare::overlay(&sides)]))?;
    }
    if let Some(file) = &args.html {
        write(file, &compare::page(&sides, &comparisons))?;
    }
    let worse = comparisons.iter().any(Comparison::is_worse);
    let tolerance = args.tolerance * 100.0;
    output::print(&match worse {
        true => format!("\nB is worse by more than {tolerance} % beyond noise\n"),
        false => format!("\nB is not worse by more than {tolerance} % beyond noise\n"),
    })?;
    Ok(u8::from(worse))
}

fn read_side(names: &str) -> Result<Side, LoadError> {
    let runs = names.split(',').map(|name| output::read(Path::new(name))).collect::<Result<Vec<_>, _>>()?;
    let label = runs[0].meta.label.clone();
    Ok(Side { name: if label.is_empty() { names.to_owned() } else { format!("{label} ({names})") }, runs })
}

fn merge(args: &MergeArgs) -> Result<u8, LoadError> {
    let open = |path: &std::path::PathBuf| {
        let failed = |error: io::Error| LoadError::usage(format!("{}: {error}", path.display()));
        fs::File::open(path).map(io::BufReader::new).map_err(failed)
    };
    let inputs = args.results.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let failed =
        |error: io::Error| LoadError::run_time(format!("merge into {}: {error}", args.output.display()));
    // Written beside its place and moved there when whole: the output may be one of the inputs.
    let partial = args.output.with_extension("partial");
    let out = fs::File::create(&partial).map(io::BufWriter::new).map_err(failed)?;
    if let Err(error) = merge::merge(inputs, out) {
        let _ = fs::remove_file(&partial);
        return Err(failed(error));
    }
    fs::rename(&partial, &args.output).map_err(failed)?;
    let result = output::read(&args.output)?;
    output::present(&result, &Output { save: Some(args.output.clone()), ..Output::default() })
}

fn report(args: &ReportArgs) -> Result<u8, LoadError> {
    if args.output.save.is_some() {
        return Err(LoadError::usage(
            "the result is saved already; report makes --html, --svg, --json, --hgrm",
        ));
    }
    let result = output::read(&args.result)?;
    output::present(&result, &Output { save: Some(args.result.clone()), ..args.output.clone() })
}

fn write(file: &Path, text: &str) -> Result<(), LoadError> {
    fs::write(file, text).map_err(|error| LoadError::run_time(format!("write {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_usage_is_one_line_with_a_cure() {
        for (line, words) in [
            ("", ["<URL>", "see shardlet bench --help"]),
            ("http://a/ --rate x", ["`x` is not a rate", "write for example"]),
            ("http://a/ --driver kqueue", ["kqueue", "auto, uring, epoll"]),
            ("http://a/ --conections 3", ["--conections", "'--connections'"]),
        ] {
            let words_typed = ["bench"].into_iter().chain(line.split_whitespace());
            let text = usage_line(&BenchArgs::try_parse_from(words_typed).expect_err(line));
            assert!(words.iter().all(|word| text.contains(word)) && !text.contains('\n'), "{line}: {text}");
        }
    }

    #[test]
    fn every_command_has_its_help() {
        let helps = helps();
        let names: Vec<_> = helps.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["bench", "bench compare", "bench merge", "bench report"]);
        assert!(helps[0].1.contains("--sweep") && helps[1].1.contains("--tolerance"), "{helps:?}");
    }
}
