package rack

// router belongs to a VPC. Only system routers are made here: routes of one's
// own are not served.
type router struct{ meta }

type routerView struct {
	identity
	VPCID string `json:"vpc_id"`
	Kind  string `json:"kind"`
}

func viewRouter(r *router) any { return routerView{r.identity(), r.scope, "system"} }

// vpcRoute is a route of a router, which is its scope.
type vpcRoute struct {
	meta
	kind                string // default or vpc_subnet
	destination, target tagged
}

// tagged is a value with its type beside it.
type tagged struct {
	Type  string `json:"type"`
	Value any    `json:"value,omitempty"`
}

type routeView struct {
	identity
	RouterID    string `json:"vpc_router_id"`
	Kind        string `json:"kind"`
	Destination tagged `json:"destination"`
	Target      tagged `json:"target"`
}

func viewRoute(r *vpcRoute) any {
	return routeView{r.identity(), r.scope, r.kind, r.destination, r.target}
}

// addSystemRouter gives a new VPC its router, with a way out for each version.
func (s *Server) addSystemRouter(v *vpc) error {
	v.router = &router{newMeta(s, v.id, "system", "routes are added to this router as subnets come and go")}
	if err := s.routers.add(v.router); err != nil {
		return err
	}

	for name, network := range map[string]string{"default-v4": "0.0.0.0/0", "default-v6": "::/0"} {
		if err := s.vpcRoutes.add(&vpcRoute{
			newMeta(s, v.router.id, name, "the default route of the VPC"), "default",
			tagged{"ip_net", network}, tagged{"internet_gateway", defaultName},
		}); err != nil {
			return err
		}
	}

	return nil
}

// addSubnetRoute makes a new subnet known to the system router.
func (s *Server) addSubnetRoute(v *vpc, n *subnet) error {
	to := tagged{"subnet", n.name}
	n.route = &vpcRoute{newMeta(s, v.router.id, n.name, "route to the subnet of this name"), "vpc_subnet", to, to}

	return s.vpcRoutes.add(n.route)
}

// queryRouter is the router that a call names beside its path. Held: s.mu.
func (c *call) queryRouter() (*router, error) {
	selector, err := c.parameter("router")
	if err != nil {
		return nil, err
	}

	return resolveInVPC(c, c.s.routers, "router", selector, RoleViewer)
}

func (s *Server) routeList(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, err := c.pageWith("project", "vpc", "router")
	if err != nil {
		return answer{}, err
	}

	r, err := c.queryRouter()
	if err != nil {
		return answer{}, err
	}

	return listIn(pg, s.vpcRoutes, r.id, viewRoute)
}

// routeView shows a route by ID alone, or by name with its router.
func (s *Server) routeView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	selector := c.path("route")
	if err := checkNameOrID(selector); err != nil {
		return answer{}, badParse("bad parameter in URL path: %v", err)
	}

	if isUUID(selector) {
		return s.routeByID(c, selector)
	}

	if !c.query.Has("router") {
		return answer{}, invalidRequest("route should either be UUID or router should be specified")
	}

	r, err := c.queryRouter()
	if err != nil {
		return answer{}, err
	}

	x, found := s.vpcRoutes.named(r.id, selector)
	if !found {
		return answer{}, notFound(kindRoute, selector)
	}

	return ok(viewRoute(x)), nil
}

func (s *Server) routeByID(c *call, id string) (answer, error) {
	if c.query.Has("router") {
		return answer{}, invalidRequest("when providing route as an ID router should not be specified")
	}

	x, found := s.vpcRoutes.get(canonicalID(id))
	if !found {
		return answer{}, notFound(kindRoute, id)
	}

	if _, err := resolveInVPC(c, s.routers, "router", x.scope, RoleViewer); err != nil {
		return answer{}, hideAs(err, kindRoute, id)
	}

	return ok(viewRoute(x)), nil
}

// gateway is the way from a VPC to the outside; each VPC has one.
type gateway struct{ meta }

type gatewayView struct {
	identity
	VPCID string `json:"vpc_id"`
}

func viewGateway(g *gateway) any { return gatewayView{g.identity(), g.scope} }
