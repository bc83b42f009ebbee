//! Pass or fail for CI: rules like `p99>5ms` given with `--fail-if`, held against a result. Neighbours: `args`
//! reads them, `report` shows them, the exit code follows them.

use std::{fmt, time::Duration};

use super::{record::Measure, result::RunResult, units};

/// A rule that makes the run fail when it is true.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    subject: Subject,
    above: bool,
    bound: f64,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Subject {
    Quantile(f64),
    Mean,
    Errors,
    Rate,
}

/// A rule and what was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The rule as it was written.
    pub rule: String,
    /// What was seen, with its unit.
    pub actual: String,
    /// Whether the rule makes the run fail.
    pub failed: bool,
}

impl Threshold {
    /// Reads `p99>5ms`, `mean>1ms`, `errors>0.1%` or `rate<19k`.
    ///
    /// # Errors
    /// One line saying how a rule is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no rule; write for example p99>5ms, errors>0.1% or rate<19k");
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, bound) = (text[..at].trim(), text[at + 1..].trim());
        let (subject, bound) = match name {
            "errors" => (Subject::Errors, units::parse_share(bound)?),
            "rate" => (Subject::Rate, units::parse_rate(bound)?),
            "mean" => (Subject::Mean, units::parse_duration(bound)?.as_secs_f64()),
            _ => {
                let quantile = units::parse_quantile(name).ok_or_else(wrong)?;
                (Subject::Quantile(quantile), units::parse_duration(bound)?.as_secs_f64())
            }
        };
        Ok(Self { subject, above: text.as_bytes()[at] == b'>', bound, text: text.to_owned() })
    }

    /// Holds the rule against a result.
    pub fn judge(&self, result: &RunResult) -> Judged {
        let response = result.totals.measure(Measure::Response);
        let time = |latency: Duration| (latency.as_secs_f64(), units::duration(latency));
        let (value, actual) = match self.subject {
            Subject::Quantile(quantile) => time(response.quantile(quantile)),
            Subject::Mean => time(response.mean()),
            Subject::Errors => {
                let share = result.totals.counters().error_share();
                (share, format!("{:.3} %", share * 100.0))
            }
            Subject::Rate => (result.rate(), units::rate(result.rate())),
        };
        let failed = if self.above { value > self.bound } else { value < self.bound };
        Judged { rule: self.text.clone(), actual, failed }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing;

    #[test]
    fn rules_fail_on_their_side_of_the_bound() {
        let result = testing::result(1_000.0, 10, |n| Duration::from_micros(100 + n % 100));
        let failed = |rule: &str| Threshold::parse(rule).expect(rule).judge(&result).failed;
        assert!(failed("p99>150us") && !failed("p99>1ms"));
        assert!(failed("rate<1100") && !failed("rate<900"));
        assert!(failed("mean<1ms") && !failed("mean>1ms"));
        assert!(!failed("errors>0.1%") && !failed("max > 1s"));
    }

    #[test]
    fn what_is_no_rule_is_said_so() {
        for wrong in ["p99", "p99>", "speed>9", "errors>x", ""] {
            assert!(Threshold::parse(wrong).is_err(), "{wrong}");
        }
    }
}
