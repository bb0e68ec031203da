//! Versions of the Internet Protocol, and the IPv6 addresses of a scenario's nodes.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Error;
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// First 32 bits of every IPv6 address of a testbed: the prefix for documentation (RFC 3849).
const PREFIX: [u16; 2] = [0x2001, 0x0db8];

/// A version of the Internet Protocol. Scenarios have its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum IpVersion {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// The version of an address.
    #[inline]
    pub const fn of(address: IpAddr) -> IpVersion {
        match address {
            IpAddr::V4(_) => IpVersion::V4,
            IpAddr::V6(_) => IpVersion::V6,
        }
    }

    /// Length of an IP header without options or extension headers, in bytes.
    #[inline]
    pub const fn header_bytes(self) -> u32 {
        match self {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }

    /// The address under this version of a node's interface that has `address` under IPv4.
    #[inline]
    pub fn address(self, address: Ipv4Addr) -> IpAddr {
        match self {
            IpVersion::V4 => address.into(),
            IpVersion::V6 => ipv6_of(address).into(),
        }
    }

    /// Whether it is IPv4, the default.
    pub fn is_v4(&self) -> bool {
        *self == IpVersion::V4
    }
}

impl TryFrom<u8> for IpVersion {
    type Error = Error;

    fn try_from(number: u8) -> Result<IpVersion, Error> {
        match number {
            4 => Ok(IpVersion::V4),
            6 => Ok(IpVersion::V6),
            _ => Err(Error::Unfit(format!("{number} is not a version of IP; allowed: 4, 6"))),
        }
    }
}

impl From<IpVersion> for u8 {
    fn from(version: IpVersion) -> u8 {
        match version {
            IpVersion::V4 => 4,
            IpVersion::V6 => 6,
        }
    }
}

impl JsonSchema for IpVersion {
    fn schema_name() -> Cow<'static, str> {
        "IpVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Version of the Internet Protocol.", "type": "integer", "enum": [4, 6]})
    }
}

/// The IPv6 address of an interface (testbed/addressing.py): 10.1.0.2 is 2001:db8:a01::2. Its /64 is the subnet of the link, as
/// the /24 is under IPv4.
pub fn ipv6_of(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets();
    Ipv6Addr::new(PREFIX[0], PREFIX[1], u16::from_be_bytes([a, b]), c.into(), 0, 0, 0, d.into())
}

/// The IPv4 address of the interface that has this IPv6 address; `None` if it is not one of a testbed.
#[cold]
pub fn ipv4_of(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [_, _, network, link, .., end] = address.segments();
    let [a, b] = network.to_be_bytes();
    let candidate = Ipv4Addr::new(a, b, link as u8, end as u8);
    (ipv6_of(candidate) == address).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_addresses_of_an_interface_lead_to_each_other() {
        for octets in [[10, 1, 0, 1], [10, 200, 249, 254], [198, 18, 7, 2]] {
            let address = Ipv4Addr::from(octets);
            assert_eq!(ipv4_of(ipv6_of(address)), Some(address));
        }
        // tests/unit/testbed/test_addressing.py holds Python to the same pairs.
        assert_eq!(ipv6_of([10, 1, 0, 2].into()).to_string(), "2001:db8:a01::2");
        assert_eq!(ipv6_of([198, 18, 7, 254].into()).to_string(), "2001:db8:c612:7::fe");
        for other in ["2001:db8:a01:100::2", "2001:db8:a01::1:2", "2001:db9:a01::2", "fe80::1"] {
            assert_eq!(ipv4_of(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn scenarios_have_the_number_of_the_version() {
        assert_eq!(serde_json::to_string(&IpVersion::V6).unwrap(), "6");
        assert_eq!(serde_json::from_str::<IpVersion>("4").unwrap(), IpVersion::V4);
        let rejected = serde_json::from_str::<IpVersion>("5").unwrap_err().to_string();
        assert!(rejected.contains("5 is not a version of IP; allowed: 4, 6"), "{rejected}");
    }
}
