//! `registry`: everything that Rust declares and Python reads, as one JSON document: mechanisms with their parameters, the
//! scenario's schema, segment classes, event kinds, and the columns of reports and telemetry.

use backchannel_core::event::{EventKind, SenderEvent};
use backchannel_core::exchange::{ArrivalLine, Exchange, SentLine};
use backchannel_core::ip::IpVersion;
use backchannel_core::report::DirectionStatus;
use backchannel_core::scenario::Scenario;
use backchannel_core::telemetry::{ClassLine, CountLine, EventLine, FlowLine, JitterLine, QueueLine, SenderLine};
use backchannel_core::Error;
use backchannel_emulator::EmulationReport;
use backchannel_links::Registry;
use backchannel_simulator::{CountersFile, SimulationReport};
use schemars::{schema_for, JsonSchema};
use serde_json::{json, Value};

use crate::crates::Added;
use crate::reports::{
    self, LoadReceiveReport, LoadSendReport, ProbeReceiveReport, ProbeSendReport, ProgramReport, TcpInfoLine,
};

/// Prints the document.
pub fn print(registry: &Registry, crates: &[Added]) -> Result<(), Error> {
    reports::print_pretty(&document(registry, crates))
}

fn document(registry: &Registry, crates: &[Added]) -> Value {
    json!({
        "crates": crates,
        "policies": registry.policies.entries().collect::<Vec<_>>(),
        "links": registry.links.entries().collect::<Vec<_>>(),
        "directions": registry.directions,
        "error_models": registry.error_models.entries().collect::<Vec<_>>(),
        "middleboxes": registry.middleboxes.entries().collect::<Vec<_>>(),
        "stacks": registry.stacks.entries().collect::<Vec<_>>(),
        "workloads": registry.workloads.entries().collect::<Vec<_>>(),
        "profiles": backchannel_links::profiles(),
        "packet_limits": packet_limits(),
        "schema": schema_for!(Scenario),
        "segment_classes": backchannel_traces::class::SEGMENT_CLASSES,
        "event_kinds": {"packet": variants::<EventKind>(), "sender": variants::<SenderEvent>()},
        "report": {
            "simulation": schema_for!(SimulationReport),
            "emulation": schema_for!(EmulationReport),
            "counters": schema_for!(CountersFile),
            "status": schema_for!(DirectionStatus),
            "audit": schema_for!(backchannel_audit::DirectionAudit),
            "load-send": schema_for!(LoadSendReport),
            "load-receive": schema_for!(LoadReceiveReport),
            "probe-send": schema_for!(ProbeSendReport),
            "probe-receive": schema_for!(ProbeReceiveReport),
            "program": schema_for!(ProgramReport),
        },
        "telemetry": {
            "queue": schema_for!(QueueLine),
            "event": schema_for!(EventLine),
            "count": schema_for!(CountLine),
            "class": schema_for!(ClassLine),
            "jitter": schema_for!(JitterLine),
            "sender": schema_for!(SenderLine),
            "flow": schema_for!(FlowLine),
            "kernel_flow": schema_for!(TcpInfoLine),
            "exchange": schema_for!(Exchange),
            "exchange_sent": schema_for!(SentLine),
            "exchange_arrival": schema_for!(ArrivalLine),
        },
    })
}

/// Lengths of packets in bytes that the validator checks; those of IP by its version.
fn packet_limits() -> Value {
    let by_version = |bytes: fn(IpVersion) -> u32| {
        let of = |ip: IpVersion| (u8::from(ip).to_string(), bytes(ip).into());
        Value::Object([IpVersion::V4, IpVersion::V6].map(of).into_iter().collect())
    };
    json!({
        "stack_least": by_version(backchannel_stacks::config::least_packet_bytes),
        "datagram_headers": by_version(backchannel_workloads::datagram_header_bytes),
        "numbered_least": backchannel_workloads::LEAST_NUMBERED_BYTES,
    })
}

/// Names and descriptions of an enum's variants, in order. The derived schema has them all.
fn variants<T: JsonSchema>() -> Vec<Value> {
    let schema = schema_for!(T);
    let variants = schema.get("oneOf").and_then(Value::as_array).expect("every variant is documented");
    variants.iter().map(|variant| json!({"name": variant["const"], "help": variant["description"]})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(document: &Value, path: &str) -> Vec<String> {
        let list = document.pointer(path).and_then(Value::as_array).unwrap();
        list.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    }

    fn properties(schema: &Value) -> Vec<&String> {
        schema["properties"].as_object().unwrap().keys().collect()
    }

    #[test]
    fn every_event_kind_is_listed_by_its_telemetry_name() {
        let document = document(&Registry::builtin(), &[]);
        let kinds = names(&document, "/event_kinds/packet");
        // A new variant fails to compile here until it is added, and then must be in the export.
        let all = [
            EventKind::DroppedFull,
            EventKind::DroppedEarly,
            EventKind::Purged,
            EventKind::Marked,
            EventKind::MarkedDupack,
            EventKind::Damaged,
            EventKind::Lost,
            EventKind::Tossed,
            EventKind::Reordered,
            EventKind::Duplicated,
            EventKind::LinkRetransmit,
            EventKind::SourceRetransmit,
            EventKind::Made,
        ];
        assert_eq!(kinds, all.map(EventKind::name));
        let senders = [
            SenderEvent::Ack,
            SenderEvent::FastRetransmit,
            SenderEvent::CorruptionRetransmit,
            SenderEvent::Mark,
            SenderEvent::SpuriousLoss,
            SenderEvent::Timeout,
        ];
        assert_eq!(names(&document, "/event_kinds/sender"), senders.map(SenderEvent::name));
    }

    #[test]
    fn the_schema_has_every_field_of_a_scenario_and_rejects_others() {
        let document = document(&Registry::builtin(), &[]);
        let schema = &document["schema"];
        let fields =
            ["capture", "duration_s", "links", "nodes", "seed", "variation", "version", "warm_up_s", "workload"];
        assert_eq!(properties(schema), fields);
        assert_eq!(schema["required"], json!(["version", "seed", "duration_s", "nodes", "links", "workload"]));
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            if definition["type"] == "object" {
                assert_eq!(definition["additionalProperties"], false, "{name}");
                for (field, of_field) in definition["properties"].as_object().unwrap() {
                    let described = of_field.get("description").is_some() || of_field.get("$ref").is_some();
                    assert!(described, "{name}.{field} has no description");
                }
            }
        }
    }

    #[test]
    fn every_number_of_telemetry_has_a_unit() {
        for (table, schema) in document(&Registry::builtin(), &[])["telemetry"].as_object().unwrap() {
            for (column, of_column) in schema["properties"].as_object().unwrap() {
                let text = of_column["type"].to_string();
                let is_number = text.contains("integer") || text.contains("number");
                assert_eq!(is_number, of_column.get("unit").is_some(), "{table}.{column}: {of_column}");
            }
        }
    }

    #[test]
    fn segment_classes_have_one_bit_each() {
        let bits: Vec<u64> = document(&Registry::builtin(), &[])["segment_classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|class| class["bit"].as_u64().unwrap())
            .collect();
        assert!(bits.iter().all(|bit| bit.count_ones() == 1));
        assert!(bits.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
