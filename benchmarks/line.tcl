# The settings of experiments/ns2 for ns-2.
# usage: ns line.tcl SETTING SEED SECONDS DELACK STRETCH
#   SETTING:  two-flows, main, table1, two-way, two-rtts, loss (one packet of data in a thousand)
#   DELACK:   0 or 1
#   STRETCH:  the wires of the servers, and those of the clients, are longer by random times from 0 to this (s)
# Prints, per direction, bit/s of whole packets acknowledged after the warm-up, for two-rtts those of each flow as well, and of the
# first download the packets sent again, the timeouts and the time average of the window.
foreach {setting seed seconds delack stretch} $argv break
# The generator's first numbers are proportional to small seeds: 8e-6 for the seed 1.
ns-random $seed
for {set i 0} {$i < 10} {incr i} { ns-random }
set ns [new Simulator]
proc draw {low high} { return [expr $low + ($high - $low) * [ns-random] / 2147483647.0] }

set left [$ns node]
set right [$ns node]
if {$setting == "table1"} {
    # A 6-byte ack at 28.8 kbit/s takes as long as one of 40 bytes at 192 kbit/s.
    array set p {down 10Mb down_s 5ms up 192kb up_s 50ms queue 10 packet 960 warm 0 wire 10Mb wires 10}
} elseif {$setting == "two-way"} {
    array set p {down 10Mb down_s 20ms up 128kb up_s 20ms queue 50 packet 960 warm 5 wire 100Mb wires 1000}
} elseif {$setting == "two-rtts"} {
    array set p {down 10Mb down_s 5ms up 10Mb up_s 5ms queue 50 packet 960 warm 5 wire 100Mb wires 1000}
} elseif {$setting == "loss"} {
    array set p {down 10Mb down_s 20ms up 10Mb up_s 20ms queue 200 packet 960 warm 5 wire 100Mb wires 1000}
} else {
    array set p {down 10Mb down_s 5ms up 1Mb up_s 5ms queue 50 packet 1460 warm 5 wire 100Mb wires 1000}
}
$ns simplex-link $left $right $p(down) $p(down_s) DropTail
$ns simplex-link $right $left $p(up) $p(up_s) DropTail
$ns queue-limit $left $right $p(queue)
if {$setting == "loss"} {
    set losses [new ErrorModel]
    $losses unit pkt
    $losses set rate_ 0.001
    $losses ranvar [new RandomVariable/Uniform]
    $losses drop-target [new Agent/Null]
    $ns lossmodel $losses $left $right
}
$ns queue-limit $right $left [expr {$setting == "two-way" ? 20 : $p(queue)}]

proc wire {a b delay} {
    global ns p
    $ns duplex-link $a $b $p(wire) $delay DropTail
    $ns queue-limit $a $b $p(wires)
    $ns queue-limit $b $a $p(wires)
}

array set longer [list server 0 client 0]
if {$stretch > 0} { array set longer [list server [draw 0 $stretch] client [draw 0 $stretch]] }

# flow DIRECTION SERVER_DELAY CLIENT_DELAY START
set flows(down) {}
set flows(up) {}
proc flow {direction far near start} {
    global ns p left right flows setting delack longer
    set server [$ns node]
    set client [$ns node]
    wire $server $left [expr $far + $longer(server)]
    wire $client $right [expr $near + $longer(client)]
    set tcp [new Agent/TCP/[expr {$setting == "table1" ? "Reno" : "Newreno"}]]
    set sink [new Agent/TCPSink[expr {$delack ? "/DelAck" : ""}]]
    if {$delack} { $sink set interval_ 200ms }
    $tcp set packetSize_ $p(packet)
    $tcp set window_ [expr {$setting == "table1" ? 120 : 10000}]
    if {$setting == "table1"} { $tcp set tcpTick_ 0.1 }
    set pair [expr {$direction == "down" ? [list $server $client] : [list $client $server]}]
    $ns attach-agent [lindex $pair 0] $tcp
    $ns attach-agent [lindex $pair 1] $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at $start "$ftp start"
    lappend flows($direction) $tcp
}

switch $setting {
    two-flows {
        flow down 0.0225 0.0225 [draw 0 0.1]
        flow up 0.0225 0.0225 [draw 0 0.1]
    }
    main {
        for {set i 0} {$i < 15} {incr i} {
            flow [expr {$i < 10 ? "down" : "up"}] [expr [draw 0.020 0.300] / 2 - 0.006] 0.001 [draw 0 1]
        }
    }
    two-way {
        flow down 0.005 0.005 [draw 0 0.1]
        flow up 0.005 0.005 [draw 0 0.1]
    }
    loss { flow down 0.005 0.005 [draw 0 0.1] }
    two-rtts {
        flow down 0.005 0.005 [draw 0 0.1]
        flow down 0.095 0.005 [draw 0 0.1]
    }
    table1 { flow down 0.001 0.001 [draw 0 0.5] }
}

set samples 0
set sum 0.0
proc sample {} {
    global ns flows samples sum
    incr samples
    set sum [expr $sum + [[lindex $flows(down) 0] set cwnd_]]
    $ns at [expr [$ns now] + 0.01] sample
}
$ns at 0.5 sample
$ns at $p(warm) {
    foreach direction {down up} {
        foreach tcp $flows($direction) { set before($tcp) [expr max(0, [$tcp set ack_])] }
    }
}
$ns at $seconds {
    foreach direction {down up} {
        set packets 0
        foreach tcp $flows($direction) { set packets [expr $packets + [$tcp set ack_] - $before($tcp)] }
        puts "$direction [expr $packets * ($p(packet) + 40) * 8.0 / ($seconds - $p(warm))]"
    }
    if {$setting == "two-rtts"} {
        foreach name {short long} tcp $flows(down) {
            puts "$name [expr ([$tcp set ack_] - $before($tcp)) * ($p(packet) + 40) * 8.0 / ($seconds - $p(warm))]"
        }
    }
    puts "retransmissions [[lindex $flows(down) 0] set nrexmitpack_]"
    puts "timeouts [[lindex $flows(down) 0] set nrexmit_]"
    puts "cwnd [expr $sum / $samples]"
    exit 0
}
$ns run
