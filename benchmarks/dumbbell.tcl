# The dumbbell of simulator.py for ns-2: no traces, long NewReno flows that ack every segment.
# usage: ns dumbbell.tcl FLOWS RATE_BPS SECONDS
foreach {flows rate seconds} $argv break
set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
$ns duplex-link $r1 $r2 [set rate]b 10ms DropTail
$ns queue-limit $r1 $r2 100
$ns queue-limit $r2 $r1 100
for {set i 0} {$i < $flows} {incr i} {
    set s($i) [$ns node]
    set d($i) [$ns node]
    $ns duplex-link $s($i) $r1 1Gb 1ms DropTail
    $ns duplex-link $r2 $d($i) 1Gb 1ms DropTail
    $ns queue-limit $s($i) $r1 1000
    $ns queue-limit $d($i) $r2 1000
    set tcp($i) [new Agent/TCP/Newreno]
    set sink($i) [new Agent/TCPSink]
    $tcp($i) set packetSize_ 1460
    $tcp($i) set window_ 10000
    $ns attach-agent $s($i) $tcp($i)
    $ns attach-agent $d($i) $sink($i)
    $ns connect $tcp($i) $sink($i)
    set ftp($i) [new Application/FTP]
    $ftp($i) attach-agent $tcp($i)
    $ns at [expr 0.01 * ($i % 100)] "$ftp($i) start"
}
$ns at $seconds {
    set packets 0
    for {set i 0} {$i < $flows} {incr i} { set packets [expr $packets + [$tcp($i) set ack_]] }
    puts $packets
    exit 0
}
$ns run
