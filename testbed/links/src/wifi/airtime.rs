//! How long frames take on the air.

use std::time::Duration;

use backchannel_core::Error;

use super::Options;

/// Bits of the service field and the tail of a transmission (802.11-2020, 17.3.5).
const SERVICE_AND_TAIL_BITS: u64 = 16 + 6;
/// Delimiter of a packet in an A-MPDU, and the unit to which it is padded (802.11-2020, 9.7.1).
const DELIMITER_BYTES: u64 = 4;
const PADDED_TO_BYTES: u64 = 4;
/// Greatest share by which whole bits of a symbol may change a rate.
const MOST_ROUNDING: f64 = 0.01;

#[derive(Clone, Copy, Debug)]
pub(super) struct Airtime {
    rate_bps: u64,
    preamble: Duration,
    symbol_ns: u64,
    sifs: Duration,
    ack: Duration,
    block_ack: Duration,
    header_bytes: u64,
    pub(super) aggregate_packets: usize,
    pub(super) ampdu_bytes: u64,
    /// Of a contender's transmission.
    contender: Duration,
}

impl Airtime {
    /// # Errors
    /// The rate is so low that symbols of whole bits have another.
    pub(super) fn new(options: &Options, rate_bps: u64) -> Result<Airtime, Error> {
        let mut air = Airtime {
            rate_bps,
            preamble: options.preamble_s,
            symbol_ns: options.symbol_s.as_nanos() as u64,
            sifs: options.sifs_s,
            ack: options.ack_s,
            block_ack: options.block_ack_s,
            header_bytes: options.header_bytes,
            aggregate_packets: options.aggregate_packets,
            ampdu_bytes: options.ampdu_bytes,
            contender: Duration::ZERO,
        };
        air.check_symbol()?;
        let mpdu = air.mpdu_bytes(options.contender_bytes);
        air.contender = air.transmission(mpdu * options.contender_ampdu as u64);
        Ok(air)
    }

    fn check_symbol(&self) -> Result<(), Error> {
        if self.symbol_ns == 0 {
            return Ok(());
        }
        let (bits, symbol_s) = (self.bits_of_symbol(), Duration::from_nanos(self.symbol_ns).as_secs_f64());
        let rate_bps = bits as f64 / symbol_s;
        if (rate_bps / self.rate_bps as f64 - 1.0).abs() <= MOST_ROUNDING {
            return Ok(());
        }
        Err(format!(
            "a symbol of {symbol_s} s carries whole bits, here {bits}, so that the rate would be {rate_bps:.0} bit/s and not \
             {}; choose a rate that it can carry, or set symbol_s: 0, with which transmissions are not rounded to symbols",
            self.rate_bps
        )
        .into())
    }

    /// Whole bits, so that rates such as 86.6 Mbit/s are rounded numbers; at least one.
    fn bits_of_symbol(&self) -> u128 {
        let bits = (u128::from(self.rate_bps) * u128::from(self.symbol_ns) + 500_000_000) / 1_000_000_000;
        bits.max(1)
    }

    /// A packet of this length on the air, with what an A-MPDU adds.
    pub(super) fn mpdu_bytes(&self, packet_bytes: u64) -> u64 {
        let mpdu = packet_bytes + self.header_bytes;
        match self.aggregate_packets {
            1 => mpdu,
            _ => (mpdu + DELIMITER_BYTES).next_multiple_of(PADDED_TO_BYTES),
        }
    }

    /// A transmission of these bytes: its preamble, and its bits in whole symbols.
    pub(super) fn transmission(&self, bytes: u64) -> Duration {
        let bits = u128::from(bytes * 8 + SERVICE_AND_TAIL_BITS);
        let ns = match self.symbol_ns {
            0 => (bits * 1_000_000_000).div_ceil(u128::from(self.rate_bps)),
            symbol => bits.div_ceil(self.bits_of_symbol()) * u128::from(symbol),
        };
        self.preamble + Duration::from_nanos(ns as u64)
    }

    /// SIFS and the answer to a transmission: an ack, or a block ack.
    pub(super) fn answer(&self) -> Duration {
        self.sifs + if self.aggregate_packets == 1 { self.ack } else { self.block_ack }
    }

    /// SIFS and an ack, which stations wait for after a transmission that failed.
    pub(super) fn ack_timeout(&self) -> Duration {
        self.sifs + self.ack
    }

    pub(super) fn contender(&self) -> Duration {
        self.contender
    }
}
