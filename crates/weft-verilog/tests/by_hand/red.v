/* verilator lint_off WIDTH */
// RED as fixed function, written by hand. The average of at most 1,000 packets has 22 bits.
module red_by_hand (
  input  wire clk,
  input  wire reset,
  input  wire [0:0] moment,
  input  wire [9:0] node_packets,
  input  wire [1:0] packet_ecn,
  input  wire drawn,
  input  wire [52:0] random,
  output wire [1:0] new_packet_ecn,
  output wire new_drawn,
  output wire [2:0] verdict
);
  localparam LOW = 22'd20480, HIGH = 22'd61440;
  reg [21:0] average;
  reg [7:0] count;

  wire [21:0] now = average - average[21:9] + {node_packets, 3'd0};
  wire low = now < LOW, high = now >= HIGH;
  wire [21:0] above = now - LOW;
  wire [38:0] slope = above * 17'd10485;
  wire [7:0] more = count == 8'd255 ? 8'd255 : count + 8'd1;
  wire [20:0] chance = more * slope[28:16];
  wire hit = {5'd0, random[52:37]} < chance;
  wire goes = moment & ~low & (high | hit);
  wire marks = goes & packet_ecn != 2'd0;

  assign new_packet_ecn = marks ? 2'd3 : packet_ecn;
  assign new_drawn = drawn | moment & ~low & ~high;
  assign verdict = {1'b0, goes & ~marks, marks};

  always @(posedge clk)
    if (reset) begin
      average <= 0; count <= 0;
    end else if (moment) begin
      average <= now;
      count <= (low | high | hit) ? 8'd0 : more;
    end
endmodule
/* verilator lint_on WIDTH */
