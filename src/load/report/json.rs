//! The result for programs: one JSON document, described by `docs/bench-result.schema.json`. Times carry their unit in
//! their name. A test holds document and schema together.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::{
    load::{
        health::Health,
        intervals::Interval,
        record::{CLASS_NAMES, ErrorKind, Measure},
        result::{RunMeta, RunResult},
        sweep::SweepPoint,
        threshold::Judged,
        units,
    },
    metrics::histogram::LatencyHistogram,
};

/// Value of the document's `schema` field; its number rises when a field changes its meaning or goes away.
pub const SCHEMA: &str = "shardlet-bench-result/1";

/// The percentiles of every latency.
const QUANTILES: [f64; 7] = [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1.0];

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    load: &'a RunMeta,
    elapsed_s: f64,
    requests: Requests,
    errors: BTreeMap<&'static str, u64>,
    status: BTreeMap<&'static str, u64>,
    latency: BTreeMap<&'static str, Latency>,
    status_latency: BTreeMap<&'static str, Latency>,
    generator: Option<&'a Health>,
    intervals: Vec<Row>,
    sweep: &'a [SweepPoint],
    rules: Vec<Rule<'a>>,
}

#[derive(Serialize)]
struct Requests {
    total: u64,
    answered: u64,
    failed: u64,
    failed_share: f64,
    per_second: f64,
    bytes: u64,
    warm_up: u64,
}

#[derive(Serialize)]
struct Latency {
    count: u64,
    min_ns: u64,
    mean_ns: u64,
    standard_deviation_ns: u64,
    max_ns: u64,
    percentiles_ns: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Row {
    start_s: f64,
    length_s: f64,
    answered: u64,
    failed: u64,
    per_second: f64,
    percentiles_ns: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Rule<'a> {
    rule: &'a str,
    actual: &'a str,
    failed: bool,
}

/// The document, with a line break at its end.
///
/// # Errors
/// None in practice: all keys are strings.
pub fn document(result: &RunResult, judged: &[Judged]) -> serde_json::Result<String> {
    let counters = result.totals.counters();
    let document = Document {
        schema: SCHEMA,
        load: &result.meta,
        elapsed_s: result.elapsed.as_secs_f64(),
        requests: Requests {
            total: counters.requests(),
            answered: counters.answered,
            failed: counters.errors_total(),
            failed_share: counters.error_share(),
            per_second: result.rate(),
            bytes: counters.bytes,
            warm_up: counters.warm_up,
        },
        errors: ErrorKind::ALL.into_iter().map(|kind| (kind.name(), counters.errors_of(kind))).collect(),
        status: CLASS_NAMES.into_iter().zip(counters.classes).collect(),
        latency: (Measure::ALL.into_iter())
            .map(|measure| (measure.name(), latency(result.totals.measure(measure))))
            .collect(),
        status_latency: (CLASS_NAMES.into_iter().enumerate())
            .filter_map(|(class, name)| Some((name, latency(result.totals.class(class)?))))
            .collect(),
        generator: result.health.as_ref(),
        intervals: result.intervals.rows().iter().map(row).collect(),
        sweep: &result.sweep,
        rules: (judged.iter())
            .map(|rule| Rule { rule: &rule.rule, actual: &rule.actual, failed: rule.failed })
            .collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn latency(histogram: &LatencyHistogram) -> Latency {
    Latency {
        count: histogram.count(),
        min_ns: nanoseconds(histogram.min()),
        mean_ns: nanoseconds(histogram.mean()),
        standard_deviation_ns: nanoseconds(histogram.standard_deviation()),
        max_ns: nanoseconds(histogram.max()),
        percentiles_ns: percentiles(|quantile| histogram.quantile(quantile)),
    }
}

fn row(interval: &Interval) -> Row {
    Row {
        start_s: interval.start.as_secs_f64(),
        length_s: interval.length.as_secs_f64(),
        answered: interval.counters.answered,
        failed: interval.counters.errors_total(),
        per_second: interval.rate(),
        percentiles_ns: percentiles(|quantile| interval.quantile(quantile)),
    }
}

fn percentiles(of: impl Fn(f64) -> Duration) -> BTreeMap<String, u64> {
    QUANTILES.iter().map(|quantile| (units::quantile_name(*quantile), nanoseconds(of(*quantile)))).collect()
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::load::{testing, threshold::Threshold};

    /// Holds a value against the part of JSON Schema that our schema uses. Unknown keywords are refused, so that
    /// the schema cannot promise what is not checked.
    fn check(value: &Value, schema: &Value, root: &Value, path: &str) {
        for (keyword, rule) in schema.as_object().expect("a schema is an object") {
            match keyword.as_str() {
                "$schema" | "$id" | "title" | "description" | "$defs" => {}
                "$ref" => {
                    let name =
                        rule.as_str().and_then(|name| name.strip_prefix("#/$defs/")).expect("a local name");
                    check(value, &root["$defs"][name], root, path);
                }
                "const" => assert_eq!(value, rule, "{path}"),
                "type" => assert!(has_type(value, rule), "{path}: {value} is no {rule}"),
                "required" if value.is_object() => {
                    for name in rule.as_array().expect("names") {
                        assert!(value.get(name.as_str().expect("a name")).is_some(), "{path} lacks {name}");
                    }
                }
                "required" | "properties" | "additionalProperties" => {}
                "items" => {
                    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                        check(item, rule, root, &format!("{path}[{at}]"));
                    }
                }
                other => panic!("{path}: the keyword {other} is not checked by this test"),
            }
        }
        let no_properties = Value::Object(serde_json::Map::new());
        let properties = schema.get("properties").unwrap_or(&no_properties);
        for (name, field) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            match (properties.get(name), schema.get("additionalProperties")) {
                (Some(rule), _) => check(field, rule, root, &path),
                (None, Some(rule)) if rule.is_object() => check(field, rule, root, &path),
                (None, Some(_)) => panic!("{path} is not in the schema"),
                (None, None) => {}
            }
        }
    }

    fn has_type(value: &Value, rule: &Value) -> bool {
        let is = |name: &str| match name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "number" => value.is_number(),
            "integer" => value.is_u64(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("unknown type {other}"),
        };
        match rule {
            Value::String(name) => is(name),
            Value::Array(names) => names.iter().any(|name| is(name.as_str().expect("a name"))),
            other => panic!("{other} names no type"),
        }
    }

    #[test]
    fn the_document_keeps_its_schema() {
        let schema: Value = serde_json::from_str(include_str!("../../../docs/bench-result.schema.json"))
            .expect("the schema is JSON");
        let mut result = testing::result(500.0, 3, |n| Duration::from_micros(50 + n % 100));
        let judged = [Threshold::parse("p99>1ms").expect("a rule").judge(&result)];
        result.sweep = vec![SweepPoint {
            rate: 500.0,
            achieved: 500.0,
            latency_ns: [1; 5],
            goal_ns: 1,
            error_share: 0.0,
            valid: true,
            kept: true,
        }];
        let full: Value =
            serde_json::from_str(&document(&result, &judged).expect("serializes")).expect("is JSON");
        check(&full, &schema, &schema, "result");
        assert_eq!(full["requests"]["answered"], 1_500);
        assert_eq!(full["latency"]["response"]["count"], 1_500);
        result.health = None;
        let bare: Value =
            serde_json::from_str(&document(&result, &[]).expect("serializes")).expect("is JSON");
        check(&bare, &schema, &schema, "result");
    }
}
