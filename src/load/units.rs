//! Units as people type and read them: `500ms`, `20k`, `64KiB`, `5%`. Its neighbours are `args` (reading)
//! and `report` (writing). Nothing else.

use std::time::Duration;

/// Reads a duration: a number with `ns`, `us`/`µs`, `ms`, `s`, `m` or `h`; a bare number is seconds.
///
/// # Errors
/// One line naming what was not understood.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("`{text}` is not a time; write for example 500ms, 10s or 2m")),
    };
    let seconds =
        positive(number).ok_or(format!("`{text}` is not a time; write for example 500ms or 10s"))? * scale;
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("`{text}`: {error}"))
}

/// Reads a rate in requests per second: `20000`, `20k`, `1.5M`; `/s` may follow.
///
/// # Errors
/// One line naming what was not understood.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a rate; write for example 20000 or 20k (requests per second)");
    let (number, unit) = split_unit(text.strip_suffix("/s").unwrap_or(text));
    let scale = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ => return Err(wrong()),
    };
    let rate = positive(number).ok_or_else(wrong)? * scale;
    match rate > 0.0 && rate <= 1e9 {
        true => Ok(rate),
        false => Err(format!("`{text}`: a rate is above 0 and at most 1000M")),
    }
}

/// Reads a size in bytes: `512`, `64k`, `1MiB`. Powers of 1024.
///
/// # Errors
/// One line naming what was not understood.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write for example 512, 64k or 1MiB");
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "" | "B" => 1.0,
        "k" | "K" | "kB" | "KB" | "KiB" => 1_024.0,
        "m" | "M" | "MB" | "MiB" => 1_048_576.0,
        _ => return Err(wrong()),
    };
    Ok((positive(number).ok_or_else(wrong)? * scale) as u64)
}

/// Reads a share: `5%` or `0.05`.
///
/// # Errors
/// One line naming what was not understood.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    positive(number.trim())
        .map(|share| share * scale)
        .ok_or(format!("`{text}` is not a share; write for example 5% or 0.05"))
}

/// Reads a percentile's name, `p99.9` or `max`, as a quantile (0 to 1).
pub fn parse_quantile(text: &str) -> Option<f64> {
    if text == "max" {
        return Some(1.0);
    }
    let percentile = positive(text.strip_prefix('p')?)?;
    (percentile <= 100.0).then_some(percentile / 100.0)
}

/// The percentile's name of a quantile: `p50`, `p99.9`, `max`.
pub fn quantile_name(quantile: f64) -> String {
    if quantile >= 1.0 {
        return "max".to_owned();
    }
    // Rounded, because 0.999 * 100 is not 99.9 in binary.
    format!("p{}", (quantile * 1e8).round() / 1e6)
}

/// A duration in at most four digits and its unit: `85.2 µs`, `1.04 ms`, `2.50 s`.
pub fn duration(value: Duration) -> String {
    let nanoseconds = value.as_nanos() as f64;
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{} µs", digits(n / 1e3)),
        n if n < 1e9 => format!("{} ms", digits(n / 1e6)),
        n if n < 120e9 => format!("{} s", digits(n / 1e9)),
        n => format!("{} min", digits(n / 60e9)),
    }
}

/// A whole number with thousands separated: `1,234,567`.
pub fn thousands(value: u64) -> String {
    let plain = value.to_string();
    let mut out = String::with_capacity(plain.len() + plain.len() / 3);
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate: `20,000/s`, or `12.5/s` below 100.
pub fn rate(value: f64) -> String {
    match value < 100.0 && value.fract() > 0.0 {
        true => format!("{value:.1}/s"),
        false => format!("{}/s", thousands(value.round() as u64)),
    }
}

/// A size: `512 B`, `1.50 MiB`.
pub fn bytes(value: u64) -> String {
    match value as f64 {
        b if b < 1_024.0 => format!("{value} B"),
        b if b < 1_048_576.0 => format!("{} KiB", digits(b / 1_024.0)),
        b if b < 1_073_741_824.0 => format!("{} MiB", digits(b / 1_048_576.0)),
        b => format!("{} GiB", digits(b / 1_073_741_824.0)),
    }
}

fn digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn positive(number: &str) -> Option<f64> {
    number.replace('_', "").parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_type() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("50µs"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_rate("20k"), Ok(20_000.0));
        assert_eq!(parse_rate("20_000/s"), Ok(20_000.0));
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_quantile("p99.9"), Some(0.9990000000000001));
        for wrong in ["", "fast", "-1s", "1e400s", "5 weeks", "nan"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert!(parse_rate("0").is_err());
        assert_eq!(parse_quantile("p101"), None);
    }

    #[test]
    fn writes_four_digits_and_a_unit() {
        let micros = |n: u64| duration(Duration::from_nanos(n * 1_000));
        assert_eq!(micros(85), "85.0 µs");
        assert_eq!(micros(1_040), "1.04 ms");
        assert_eq!(micros(2_500_000), "2.50 s");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
        assert_eq!(rate(20_000.0), "20,000/s");
        assert_eq!(bytes(1_572_864), "1.50 MiB");
        assert_eq!(quantile_name(0.999), "p99.9");
        assert_eq!(quantile_name(0.5), "p50");
    }
}
