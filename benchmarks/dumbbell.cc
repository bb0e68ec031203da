// The dumbbell of simulator.py for ns-3: real headers, long NewReno flows that ack every segment.
// usage: dumbbell FLOWS RATE_BPS SECONDS [PCAP_PREFIX]
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

int
main(int argc, char** argv)
{
    if (argc < 4)
    {
        std::cerr << "usage: dumbbell FLOWS RATE_BPS SECONDS [PCAP_PREFIX]\n";
        return 2;
    }
    const uint32_t flows = std::stoul(argv[1]);
    const double seconds = std::stod(argv[3]);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));

    NodeContainer routers(2);
    NodeContainer senders(flows);
    NodeContainer receivers(flows);
    InternetStackHelper internet;
    internet.InstallAll();

    PointToPointHelper line;
    line.SetDeviceAttribute("DataRate", StringValue(std::string(argv[2]) + "bps"));
    line.SetChannelAttribute("Delay", StringValue("10ms"));
    line.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("100p"));
    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    access.SetChannelAttribute("Delay", StringValue("1ms"));
    access.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000p"));

    // The devices' own queues are the queues under study: no queue discs above them.
    TrafficControlHelper control;
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    auto number = [&](const NetDeviceContainer& devices) {
        Ipv4InterfaceContainer given = addresses.Assign(devices);
        addresses.NewNetwork();
        for (uint32_t i = 0; i < devices.GetN(); ++i)
        {
            control.Uninstall(devices.Get(i));
        }
        return given;
    };
    number(line.Install(routers));
    std::vector<Ptr<PacketSink>> sinks;
    for (uint32_t i = 0; i < flows; ++i)
    {
        number(access.Install(senders.Get(i), routers.Get(0)));
        Ipv4InterfaceContainer ends = number(access.Install(routers.Get(1), receivers.Get(i)));
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
        sinks.push_back(DynamicCast<PacketSink>(sink.Install(receivers.Get(i)).Get(0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(ends.GetAddress(1), 5001));
        bulk.SetAttribute("SendSize", UintegerValue(1460));
        bulk.Install(senders.Get(i)).Start(Seconds(0.01 * (i % 100)));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    if (argc > 4)
    {
        line.EnablePcapAll(argv[4]);
    }
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    uint64_t bytes = 0;
    for (const auto& sink : sinks)
    {
        bytes += sink->GetTotalRx();
    }
    std::cout << bytes / 1460 << "\n";
    Simulator::Destroy();
    return 0;
}
