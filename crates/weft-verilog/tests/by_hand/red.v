/* verilator lint_off WIDTH */
// RED as fixed function, written by hand. The average of at most 1,000 packets has 26 bits, of which 16 are behind the
// point.
module red_by_hand (
  input  wire clk,
  input  wire reset,
  input  wire [1:0] moment,
  input  wire [62:0] now,
  input  wire [9:0] node_packets,
  input  wire [1:0] packet_ecn,
  input  wire [52:0] random,
  input  wire drawn,
  output wire [1:0] new_packet_ecn,
  output wire new_drawn,
  output wire [2:0] verdict
);
  localparam LOW = 26'd327680, HIGH = 26'd983040;
  reg [25:0] average;
  reg [15:0] left;
  reg idle;
  reg [62:0] idle_at;

  wire comes = moment == 2'd1, empty = moment == 2'd2;

  // How often the average has halved while the link was idle, in 32nds.
  wire [62:0] since = now - idle_at;
  wire [11:0] waited = |since[62:33] ? 12'hfff : since[32:21];
  wire [16:0] product = waited * 5'd30;
  wire [9:0] halves = product[16:7];
  wire [15:0] halved = average[25:10] >> halves[9:5];
  wire [21:0] sunk = halved * (7'd64 - halves[4:0]);
  wire [25:0] before = idle ? {sunk, 4'd0} : average;

  wire [34:0] kept = before * 9'd511;
  wire [25:0] now_average = kept[34:9] + {node_packets, 7'd0};
  wire low = now_average < LOW, high = now_average >= HIGH;
  wire [11:0] above = now_average[19:8] - 12'd1280;
  wire [28:0] slope = above * 17'd83886;
  wire draws = left == 16'd0;
  wire [15:0] ahead = draws ? random[52:38] + 16'd1 : left;
  wire hit = ahead <= slope[28:16];
  wire goes = comes & ~low & (high | hit);
  wire marks = goes & packet_ecn != 2'd0;

  assign new_packet_ecn = marks ? 2'd3 : packet_ecn;
  assign new_drawn = drawn | comes & ~low & ~high & draws;
  assign verdict = {1'b0, goes & ~marks, marks};

  always @(posedge clk)
    if (reset) begin
      average <= 0; left <= 0; idle <= 0;
    end else if (comes) begin
      average <= now_average;
      left <= low | high | hit ? 16'd0 : ahead - slope[28:16];
      idle <= 0;
    end else if (empty) begin
      idle <= 1;
      if (~idle) idle_at <= now;
    end
endmodule
/* verilator lint_on WIDTH */
