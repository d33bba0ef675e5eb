//! `/metrics`: numbers in Prometheus' text format.
//!
//! Names follow the conventions of Prometheus: base units, `_total` for counters. Labels are
//! bounded: classes of operations, causes of waiting, and the names of shares up to
//! [`SHARE_LABELS`](crate::limits::SHARE_LABELS). Users and clients are no labels.

use std::fmt::Error;

use frevo_server::{LatencyBuckets, Metrics, RateStatus, Rows, Server, ServerStatus, ShareStatus};
use hyper::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::answers::{Answer, refusal};
use crate::health::{ShareHealth, State};
use crate::limits::SHARE_LABELS;
use crate::{ClusterView, ShareSnapshots};

/// The type of the text.
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns all metrics in the text format of Prometheus.
pub(crate) fn answer(
    server: &Server,
    health: Rows<ShareHealth>,
    cluster: Option<ClusterView>,
    snapshots: Vec<ShareSnapshots>,
) -> Answer {
    match text(server, health, cluster, snapshots) {
        Ok(text) => super::answers::answer(StatusCode::OK, KIND, text),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn text(
    server: &Server,
    health: Rows<ShareHealth>,
    cluster: Option<ClusterView>,
    snapshots: Vec<ShareSnapshots>,
) -> Result<String, Error> {
    let scrape = Scrape {
        server: server.overview(),
        shares: server.share_status(),
        rates: server.rate_status(),
        metrics: server.metrics(),
        health,
        cluster: cluster.unwrap_or_default(),
        snapshots,
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The numbers of one scrape.
#[derive(Debug)]
struct Scrape {
    server: ServerStatus,
    shares: Vec<ShareStatus>,
    rates: Vec<RateStatus>,
    metrics: Metrics,
    health: Rows<ShareHealth>,
    /// Empty for a server on its own.
    cluster: ClusterView,
    /// Empty for a server that makes no snapshots.
    snapshots: Vec<ShareSnapshots>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.gauges(&mut encoder)?;
        self.counters(&mut encoder)?;
        self.times(&mut encoder)?;
        self.latencies(&mut encoder)?;
        self.errors(&mut encoder)?;
        self.shares(&mut encoder)?;
        self.owners(&mut encoder)?;
        self.cluster(&mut encoder)?;
        self.snapshots(&mut encoder)?;
        self.rates(&mut encoder)?;
        self.logical_flows(&mut encoder)?;
        self.health(&mut encoder)
    }
}

/// A number as Prometheus takes it: whole up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
const fn float(number: u64) -> f64 {
    number as f64
}

fn seconds(micros: u64) -> f64 {
    float(micros) / 1e6
}

impl Scrape {
    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Self { server, shares, metrics, .. } = self;
        let version = [("version", server.version)];
        family(
            encoder,
            "frevo_build_info",
            "Version of the server",
            MetricType::Gauge,
            |mut one| ConstGauge::new(1_i64).encode(one.encode_family(&version)?),
        )?;
        let gauges: [(&str, &str, usize); 15] = [
            ("frevo_connections", "Transport connections", metrics.connections),
            ("frevo_sessions", "Sessions of clients", metrics.sessions),
            ("frevo_opens", "Files, directories and pipes that clients have open", metrics.opens),
            (
                "frevo_files",
                "Files and directories that are open, each counted once",
                metrics.files,
            ),
            ("frevo_durable_opens", "Opens that outlive their connection", metrics.durable_opens),
            ("frevo_waiting_opens", "Opens that wait for their client", metrics.waiting_opens),
            ("frevo_memory_bytes", "Memory that the server keeps for its clients", metrics.memory),
            ("frevo_shares", "Shares", shares.len()),
            (
                "frevo_braked_clients",
                "Clients that the brake of a share has hold of, or told of lately",
                metrics.braked_clients,
            ),
            (
                "frevo_witness_registrations",
                "Clients of other nodes that have registered with the witness of this one",
                metrics.witness_registrations,
            ),
            (
                "frevo_namespace_servers_probed",
                "Servers of targets in namespaces that are probed",
                metrics.probed_servers,
            ),
            (
                "frevo_namespace_servers_failing",
                "Servers of targets in namespaces that do not answer probes",
                metrics.failing_servers,
            ),
            (
                "frevo_scans_waiting",
                "Files that wait for a scan for viruses or are being scanned",
                metrics.scans_waiting,
            ),
            (
                "frevo_index_files",
                "Files and folders in the indexes of shares",
                usize::try_from(self.metrics.index_files).unwrap_or(usize::MAX),
            ),
            (
                "frevo_index_bytes",
                "Memory of the indexes of shares",
                usize::try_from(self.metrics.index_bytes).unwrap_or(usize::MAX),
            ),
        ];
        for (name, help, value) in gauges {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family(encoder, name, help, MetricType::Gauge, |one| {
                ConstGauge::new(value).encode(one)
            })?;
        }
        let started = server.started;
        let (name, help) = ("frevo_start_time_seconds", "Seconds from 1970 to the start");
        family(encoder, name, help, MetricType::Gauge, |one| ConstGauge::new(started).encode(one))
    }

    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let activity = &self.server.activity;
        let counters: [(&str, &str, u64); 16] = [
            ("frevo_received_bytes", "Bytes of requests", activity.received),
            ("frevo_sent_bytes", "Bytes of responses", activity.sent),
            ("frevo_failed_requests", "Requests answered with an error", activity.failures),
            ("frevo_failed_logons", "Logons that failed", self.server.failed_logons),
            (
                "frevo_compression_saved_sent_bytes",
                "Bytes by which compression has made responses shorter",
                self.metrics.saved_in_answers,
            ),
            (
                "frevo_compression_saved_received_bytes",
                "Bytes by which compression has made requests shorter",
                self.metrics.saved_in_requests,
            ),
            ("frevo_panics", "Panics, each a bug in the server", self.metrics.panics),
            ("frevo_held_polls", "Polls that held a core for too long", self.metrics.held_polls),
            ("frevo_recycled_files", "Deleted files moved to recycle bins", self.metrics.recycled),
            (
                "frevo_recycle_lost_files",
                "Files deleted for good because their recycle bin could not take them",
                self.metrics.recycle_lost,
            ),
            (
                "frevo_recycle_expired_files",
                "Files removed from recycle bins for their age or the size of the bin",
                self.metrics.recycle_expired,
            ),
            (
                "frevo_brake_alarms",
                "Times that the brake of a share took hold of a client",
                self.metrics.brake_alarms,
            ),
            (
                "frevo_witness_notifications",
                "Notifications of the witness that clients have fetched",
                self.metrics.witness_notifications,
            ),
            ("frevo_scans", "Files scanned for viruses", self.metrics.scans),
            ("frevo_scan_finds", "Viruses that scans have found", self.metrics.scan_finds),
            ("frevo_scan_failures", "Scans that have failed", self.metrics.scan_failures),
        ];
        for (name, help, value) in counters {
            family(encoder, name, help, MetricType::Counter, |one| {
                ConstCounter::new(value).encode(one)
            })?;
        }
        Ok(())
    }

    /// On what the time of requests went.
    fn times(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let activity = &self.server.activity;
        let spent = [
            ("core", activity.busy_us),
            ("medium", activity.waited_medium_us),
            ("others", activity.waited_others_us),
            ("limits", activity.waited_limits_us),
        ];
        let (name, help) = ("frevo_request_time_seconds", "Time of requests, by what it went on");
        family(encoder, name, help, MetricType::Counter, |mut one| {
            spent.iter().try_for_each(|(on, micros)| {
                ConstCounter::new(seconds(*micros)).encode(one.encode_family(&[("on", *on)])?)
            })
        })?;
        let waits = [("credits", activity.without_credits_us), ("network", activity.unsent_us)];
        let (name, help) = ("frevo_client_wait_seconds", "Time in which clients waited, by cause");
        family(encoder, name, help, MetricType::Counter, |mut one| {
            waits.iter().try_for_each(|(cause, micros)| {
                ConstCounter::new(seconds(*micros)).encode(one.encode_family(&[("cause", *cause)])?)
            })
        })
    }

    fn latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let classes = &self.server.activity.classes;
        let ends = LatencyBuckets::ends();
        let (name, help) = ("frevo_request_duration_seconds", "Latency of requests");
        family(encoder, name, help, MetricType::Histogram, |mut one| {
            classes.iter().try_for_each(|class| {
                let buckets: Vec<(f64, u64)> = ends.into_iter().zip(class.buckets).collect();
                let label = [("class", class.class)];
                let mut of_class = one.encode_family(&label)?;
                let sum = seconds(class.sum_us);
                of_class.encode_histogram::<NoLabelSet>(sum, class.count, &buckets, None)
            })
        })
    }

    fn errors(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (name, help) = ("frevo_errors", "Requests answered with an error, by status");
        family(encoder, name, help, MetricType::Counter, |mut one| {
            self.server.errors.iter().try_for_each(|error| {
                let label = [("status", &*error.status)];
                ConstCounter::new(error.count).encode(one.encode_family(&label)?)
            })
        })
    }

    /// The health of the first shares; no value until a share was looked at.
    fn health(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let known = || {
            let labelled = self.health.rows.iter().take(SHARE_LABELS);
            labelled.filter(|share| share.state != State::Unknown)
        };
        let (name, help) = ("frevo_share_usable", "1 when the folder of a share answers, else 0");
        family(encoder, name, help, MetricType::Gauge, |mut one| {
            known().try_for_each(|share| {
                let value = i64::from(share.state == State::Ok);
                ConstGauge::new(value).encode(one.encode_family(&[("share", &*share.name)])?)
            })
        })?;
        let (name, help) = ("frevo_share_available_bytes", "Free space of the share's file system");
        family(encoder, name, help, MetricType::Gauge, |mut one| {
            known().try_for_each(|share| {
                let Some(bytes) = share.available else { return Ok(()) };
                let value = i64::try_from(bytes).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(one.encode_family(&[("share", &*share.name)])?)
            })
        })
    }

    /// The owner of the first shares.
    fn owners(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (name, help) = ("frevo_share_owned", "1 when this server serves the share, else 0");
        family(encoder, name, help, MetricType::Gauge, |mut one| {
            self.shares.iter().take(SHARE_LABELS).try_for_each(|share| {
                let value = i64::from(share.life.is_served() && !share.paused);
                ConstGauge::new(value).encode(one.encode_family(&[("share", &*share.name)])?)
            })
        })
    }

    /// The cluster; zeros for a server on its own.
    fn cluster(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let view = &self.cluster;
        let is_own = |unit: &&crate::ClusterUnit| unit.owner.as_ref() == Some(&view.node);
        let own = view.units.iter().filter(is_own).count();
        let gauges: [(&str, &str, usize); 4] = [
            ("frevo_cluster_nodes", "Nodes of the cluster that are up", view.nodes.len()),
            ("frevo_cluster_units", "Units of the cluster that this node owns", own),
            (
                "frevo_cluster_etcd_answers",
                "1 when etcd answers this node, else 0",
                usize::from(view.etcd_answers),
            ),
            (
                "frevo_cluster_serving",
                "1 while etcd confirms this node, so that it may serve, else 0",
                usize::from(view.is_serving),
            ),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family(encoder, name, help, MetricType::Gauge, |one| ConstGauge::new(value).encode(one))
        })
    }

    /// The snapshots of the first shares of which the server makes some.
    fn snapshots(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        type Value = fn(&ShareSnapshots) -> Option<u64>;
        let gauges: [(&str, &str, Value); 2] = [
            ("frevo_snapshots", "Snapshots of a share that the server has made", |share| {
                u64::try_from(share.count).ok()
            }),
            (
                "frevo_snapshot_newest_seconds",
                "Seconds from 1970 to the newest of these snapshots",
                |share| share.newest,
            ),
        ];
        let shown = || self.snapshots.iter().take(SHARE_LABELS);
        for (name, help, value) in gauges {
            family(encoder, name, help, MetricType::Gauge, |mut one| {
                shown().filter_map(|share| Some((share, value(share)?))).try_for_each(
                    |(share, value)| {
                        let value = i64::try_from(value).unwrap_or(i64::MAX);
                        let label = [("share", &*share.share)];
                        ConstGauge::new(value).encode(one.encode_family(&label)?)
                    },
                )
            })?;
        }
        let (name, help) = ("frevo_snapshot_failures", "Acts on snapshots of a share that failed");
        family(encoder, name, help, MetricType::Counter, |mut one| {
            shown().try_for_each(|share| {
                let label = [("share", &*share.share)];
                ConstCounter::new(share.failures).encode(one.encode_family(&label)?)
            })
        })
    }

    /// Requests that limits of rate hold back. Rules have names of the configuration, and are few.
    fn rates(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (name, help) = ("frevo_rate_waiting", "Requests that wait for a limit of rate");
        family(encoder, name, help, MetricType::Gauge, |mut one| {
            self.rates.iter().try_for_each(|rate| {
                let value = i64::try_from(rate.waiting).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(one.encode_family(&[("rate", &*rate.name)])?)
            })
        })?;
        let (name, help) = (
            "frevo_rate_buckets",
            "Users, sessions or addresses with a limit of rate of their own",
        );
        family(encoder, name, help, MetricType::Gauge, |mut one| {
            self.rates.iter().try_for_each(|rate| {
                let value = i64::try_from(rate.buckets).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(one.encode_family(&[("rate", &*rate.name)])?)
            })
        })?;
        let (name, help) = ("frevo_rate_held", "Requests that a limit of rate has held back");
        family(encoder, name, help, MetricType::Counter, |mut one| {
            self.rates.iter().try_for_each(|rate| {
                ConstCounter::new(rate.held).encode(one.encode_family(&[("rate", &*rate.name)])?)
            })
        })?;
        let (name, help) =
            ("frevo_rate_held_seconds", "Time for which a limit of rate has held requests back");
        family(encoder, name, help, MetricType::Counter, |mut one| {
            self.rates.iter().try_for_each(|rate| {
                let label = [("rate", &*rate.name)];
                ConstCounter::new(seconds(rate.held_us)).encode(one.encode_family(&label)?)
            })
        })
    }

    /// Requests that limits of logical flows hold back. The ids of flows are no labels: clients choose them.
    fn logical_flows(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let metrics = &self.metrics;
        for (name, help, value) in [
            ("frevo_storage_qos_flows", "Logical flows of storage QoS", metrics.logical_flows),
            (
                "frevo_storage_qos_waiting",
                "Requests that wait for limits of logical flows",
                metrics.flows_waiting,
            ),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family(encoder, name, help, MetricType::Gauge, |one| {
                ConstGauge::new(value).encode(one)
            })?;
        }
        let (name, help) =
            ("frevo_storage_qos_held", "Requests that limits of logical flows have held back");
        family(encoder, name, help, MetricType::Counter, |one| {
            ConstCounter::new(metrics.flows_held).encode(one)
        })?;
        let (name, help) = (
            "frevo_storage_qos_held_seconds",
            "Time for which limits of logical flows have held requests back",
        );
        family(encoder, name, help, MetricType::Counter, |one| {
            ConstCounter::new(seconds(metrics.flows_held_us)).encode(one)
        })
    }

    fn shares(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let rows = &self.shares;
        let (shown, rest) = rows.split_at(rows.len().min(SHARE_LABELS));
        let mut counts: Vec<(&str, usize, usize)> =
            shown.iter().map(|share| (&*share.name, share.connections, share.opens)).collect();
        if !rest.is_empty() {
            // The name of a share has no slash, so the label "/others/" cannot be the name of a
            // share.
            let sum = |of: fn(&ShareStatus) -> usize| rest.iter().map(of).sum();
            counts.push(("/others/", sum(|share| share.connections), sum(|share| share.opens)));
        }
        type Count = fn(&(&str, usize, usize)) -> usize;
        let families: [(&str, &str, Count); 2] = [
            ("frevo_share_connections", "Tree connects to a share", |(_, count, _)| *count),
            ("frevo_share_opens", "Opens through a share", |(_, _, count)| *count),
        ];
        for (name, help, count) in families {
            family(encoder, name, help, MetricType::Gauge, |mut one| {
                counts.iter().try_for_each(|share| {
                    let value = i64::try_from(count(share)).unwrap_or(i64::MAX);
                    ConstGauge::new(value).encode(one.encode_family(&[("share", share.0)])?)
                })
            })?;
        }
        Ok(())
    }
}

/// Writes one family of metrics.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    values: impl FnOnce(MetricEncoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    values(encoder.encode_descriptor(name, help, None, kind)?)
}

#[cfg(test)]
mod tests {
    use frevo_server::vfs;

    use super::*;

    #[test]
    fn so_many_shares_have_metrics_of_their_own() {
        // IPC$ counts as one share, so these numbers are just below, at and above the limit.
        for shares in [SHARE_LABELS - 2, SHARE_LABELS - 1, SHARE_LABELS] {
            let builder = (0..shares).fold(Server::builder(), |builder, number| {
                builder.share(&format!("share{number:04}"), vfs::memory(1 << 20))
            });
            let health = Rows { rows: Vec::new(), more: 0 };
            let text = text(&builder.build().unwrap(), health, None, Vec::new()).unwrap();
            let own = text.matches("frevo_share_opens{share=\"share").count();
            assert_eq!(own, shares.min(SHARE_LABELS - 1));
            let others = text.matches("frevo_share_opens{share=\"/others/\"}").count();
            assert_eq!(others, usize::from(shares >= SHARE_LABELS), "{shares} shares");
        }
    }
}
